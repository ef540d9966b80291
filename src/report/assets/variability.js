// The sections of a variability study.

function boxChart(id, title, level) {
  const kept = level.groups.length > 120 ? [...level.groups.slice(0, 60), ...level.groups.slice(-60)] : level.groups;
  return {kept, chart: (runs, nameOf) => chart(id, {
    title, note: kept.length < level.groups.length ? `the 60 slowest and the 60 fastest of ${level.groups.length}` : "1 is the median over all devices",
    x: "", boxes: kept.map((group) => ({label: group.name, ...group.box})), wide: true, link: id,
    sets: [{label: "run", index: 0, only: true, dots: 2.5, points: kept.flatMap((group, index) => {
      const of = runs.filter((run) => nameOf(run) === group.name);
      return of.map((run, place) => ({x: index + (of.length > 1 ? 0.4 * (place / (of.length - 1) - 0.5) : 0), y: run.normalized, name: `${group.name}, ${run.run}`}));
    })}],
  })};
}

// All of them in one picture: each run a point, and each device's median.
function allTogether(doc) {
  const spread = (values, at) => values.map(({y, name}, place) => ({x: at + (values.length > 1 ? 0.44 * (place / (values.length - 1) - 0.5) : 0), y, name}));
  return chart("all", {title: "All runs and all devices", note: "1 is the median over all devices", x: "", wide: true,
    boxes: [{label: "runs", ...doc.box}, {label: "devices", ...doc.devices.box}],
    sets: [{label: "run", index: 0, only: true, dots: 2.5, points: spread(doc.runs.map((run) => ({y: run.normalized, name: `${run.device}, ${run.run}`})), 0)},
      {label: "median of a device", index: 1, only: true, dots: 3.5, points: spread(doc.devices.groups.map((group) => ({y: group.normalized, name: group.name})), 1)}]});
}

const groupColumns = (kind) => [
  {title: kind, key: "name", text: true}, ...(kind === "device" ? [{title: "node", key: "node", text: true}] : []),
  ...(kind === "cabinet" ? [] : [{title: "cabinet", key: "cabinet", text: true}]), {title: "runs", key: "runs"},
  ...(kind === "device" ? [{title: "speed", key: "score", cell: (g) => two(g.score)}, {title: "class", key: "class", text: true, mark: (g) => g.class === "normal" || g.class === "unknown" ? "" : "worse"}]
    : [{title: "stands out", get: (g) => g.outlier ? (g.normalized > 1 ? "slow" : "fast") : "", text: true, mark: (g) => g.outlier ? "worse" : ""}]),
  {title: "median iteration", key: "median_s", unit: "s"},
  {title: "of the median", key: "normalized", cell: (g) => percent(g.normalized - 1)}, {title: "clock", key: "clock_mhz", unit: "MHz"}, {title: "temperature", key: "temperature_c", unit: "°C"},
  {title: "power", key: "power_w", unit: "W"}, {title: "deviation of runs", key: "run_deviation", unit: "part"}, {title: "of iterations", key: "iteration_deviation", unit: "part"},
  {title: "throttled by", get: (g) => g.throttle.map((entry) => `${entry.reason} ${format(entry.share, "part")}`).join(", "), text: true}, {title: "changes", key: "changes"},
  ...(kind === "device" ? [{title: "why", key: "why", text: true}] : [])];

const two = (value) => isNumber(value) ? value.toFixed(2) : "–";
const words = {clock_mhz: "Clock", memory_clock_mhz: "Memory clock", temperature_c: "Temperature", power_w: "Power"};
const units = {clock_mhz: "MHz", memory_clock_mhz: "MHz", temperature_c: "°C", power_w: "W"};

// How the runs went whose speed changed, over their own length.
function changeCharts(doc) {
  const most = 12, changed = doc.runs.filter((run) => run.change && run.change.over_time.length);
  return changed.slice(0, most).map((run, index) => chart("change-" + index, {
    title: `${run.device}, ${run.run}`, note: `${percent(run.change.by)} after ${Math.round(100 * run.change.at)} %${run.change.cause ? ": " + run.change.cause : ""}${changed.length > most && index === 0 ? `; the first ${most} of ${changed.length}` : ""}`,
    x: "part of the run", xUnit: "part", marks: [{x: run.change.at, text: "change"}],
    sets: [{label: "iteration time, 1 is the median over all devices", index: 0, points: run.change.over_time.map((y, place) => ({x: (place + 0.5) / run.change.over_time.length, y}))}]}));
}

function renderVariability(doc) {
  const tile = (name, value, small) => el("div", {class: "tile"}, el("dt", {}, name), el("dd", {}, value, el("small", {}, small)));
  const out = (level) => level.groups.filter((group) => group.outlier).length;
  const devices = boxChart("devices", "Iteration time by device", doc.devices);
  const cabinets = doc.cabinets.groups.length ? boxChart("cabinets", "Iteration time by cabinet", doc.cabinets) : null;
  const scatter = doc.correlations.map((entry) => chart("with-" + entry.with, {
    title: `${words[entry.with]} and iteration time`, x: words[entry.with], xUnit: units[entry.with], scatter: true,
    note: isNumber(entry.pearson) ? `Pearson ${two(entry.pearson)}${entry.coverage ? ` (95%: ${two(entry.low)} to ${two(entry.high)})` : ""}, Spearman ${two(entry.spearman)}` : "one side does not vary",
    sets: [{label: "run", index: 0, only: true, dots: 3, points: doc.runs.filter((run) => isNumber(run[entry.with]))
      .map((run) => ({x: run[entry.with], y: run.normalized, name: `${run.device}, ${run.run}`})).sort((a, b) => a.x - b.x)}]}));
  const sections = [
    section("spread", "Spread", charts(allTogether(doc), devices.chart(doc.runs, (run) => run.device), cabinets ? cabinets.chart(doc.runs, (run) => run.cabinet) : null)),
    section("correlation", "What goes along with it", charts(scatter)),
    section("changes", "Changes within runs", charts(changeCharts(doc))),
    section("groups", "Devices, nodes, cabinets", table("devices", "Devices", groupColumns("device"), doc.devices.groups),
      table("nodes", "Nodes", groupColumns("node"), doc.nodes.groups), table("cabinets", "Cabinets", groupColumns("cabinet"), doc.cabinets.groups)),
    section("runs", "Runs", table("all-runs", "Runs", [{title: "run", key: "run", text: true}, {title: "device", key: "device", text: true}, {title: "median", key: "median_s", unit: "s"},
      {title: "mean", key: "mean_s", unit: "s"}, {title: "fastest", key: "min_s", unit: "s"}, {title: "slowest", key: "max_s", unit: "s"}, {title: "of the median", key: "normalized", cell: (r) => percent(r.normalized - 1)},
      {title: "clock", key: "clock_mhz", unit: "MHz"}, {title: "temperature", key: "temperature_c", unit: "°C"}, {title: "power", key: "power_w", unit: "W"}], doc.runs.slice(0, 2000))),
  ].filter(Boolean);
  return {
    title: "Variability between devices", sections,
    words: [el("p", {class: "soft"}, `${doc.runs.length} runs on ${doc.devices.groups.length} devices of ${doc.nodes.groups.length} nodes`)],
    content: [el("dl", {class: "tiles"}, tile("over runs", format(doc.box.variability, "part"), "whisker to whisker, of the median"),
      doc.devices.groups.length > 1 ? tile("over devices", format(doc.devices.box.variability, "part"), "of their medians") : null, tile("devices that stand out", doc.devices.tested ? String(out(doc.devices)) : "–", doc.devices.tested ? "beyond what chance does" : "too few to tell"),
      tile("runs whose speed changed", String(doc.runs.filter((run) => run.change).length), "within them"),
      doc.nodes.tested ? tile("nodes that stand out", String(out(doc.nodes)), "beyond what chance does") : null, doc.cabinets.tested ? tile("cabinets that stand out", String(out(doc.cabinets)), "beyond what chance does") : null),
      doc.problems.length ? el("ul", {class: "warnings"}, doc.problems.map((text) => el("li", {}, text))) : null, ...sections],
    note: `Redline ${doc.program.version} (${doc.program.commit}), ${doc.generated}. Times are medians of a run's iterations without the first, divided by the median over all devices. Deviations are standard deviations as parts of the median: ${["iterations", "runs", "devices"].filter((key) => isNumber(doc.deviations[key])).map((key) => `${format(doc.deviations[key], "part")} ${{iterations: "within runs", runs: "between runs of a device", devices: "between devices"}[key]}`).join(", ")}.`,
  };
}
