// The sections of a variability study.

const mostBoxes = 40;     // with room for their names
const mostInBox = 60;     // points next to one box; if there are more, only those outside its whiskers

// The points that belong to a box, spread out so that they can be told apart.
function pointsAt(box, list, at) {
  const kept = list.length > mostInBox ? list.filter((p) => p.y < box.low || p.y > box.high) : list;
  return kept.map((p, index) => ({...p, x: at + (kept.length > 1 ? 0.44 * (index * 0.618 % 1 - 0.5) : 0)}));
}

// One box per group: all, or the slowest if there are many.
function boxChart(id, title, level, runs, nameOf) {
  const kept = level.groups.slice(0, mostBoxes), by = new Map(kept.map((group) => [group.name, []]));
  for (const run of runs) if (by.has(nameOf(run))) by.get(nameOf(run)).push({y: run.normalized, name: `${nameOf(run)}, ${run.run}`});
  return chart(id, {
    title, note: (kept.length < level.groups.length ? `the ${kept.length} slowest of ${plain(level.groups.length)}; ` : "") + "1 is the median over all devices",
    x: "", boxes: kept.map((group) => ({label: group.name, ...group.box})), wide: true, link: id, robust: true,
    sets: [{label: "run", index: 0, only: true, dots: 2.5, points: kept.flatMap((group, index) => pointsAt(group.box, by.get(group.name), index))}],
  });
}

// All devices from fastest to slowest: median, a line over the quartiles, and the names of those that stand out.
function rankChart(level) {
  const rising = [...level.groups].reverse().map((group, index) => ({x: index + 1, y: group.normalized, name: group.name, group}));
  const slow = rising.filter((p) => p.group.outlier), usual = rising.filter((p) => !p.group.outlier);
  slow.slice(-12).forEach((p) => { p.tag = p.name.slice(0, 32); });
  return chart("rank", {title: "All devices by iteration time", note: "1 is the median over all devices; lines from the first to the third quartile of a device's runs", x: "place, fastest first", wide: true, robust: true, scatter: true,
    ranges: rising.map((p) => ({x: p.x, low: p.group.box.q1, high: p.group.box.q3})),
    sets: [{label: "device", index: 0, only: true, dots: 2, points: usual}, {label: "stands out", index: 1, only: true, solid: true, dots: 3.5, points: slow}]});
}

// All in one chart: each run is a point, with each device's median.
function allTogether(doc) {
  const runs = doc.runs.map((run) => ({y: run.normalized, name: `${run.device}, ${run.run}`})), devices = doc.devices.groups.map((group) => ({y: group.normalized, name: group.name}));
  return chart("all", {title: "All runs and all devices", note: "1 is the median over all devices" + (runs.length > mostInBox ? "; points are those outside the whiskers" : ""), x: "", wide: true, robust: true,
    boxes: [{label: "runs", ...doc.box}, {label: "devices", ...doc.devices.box}],
    sets: [{label: "run", index: 0, only: true, dots: 2.5, points: pointsAt(doc.box, runs, 0)},
      {label: "median of a device", index: 1, only: true, dots: 3.5, points: pointsAt(doc.devices.box, devices, 1)}]});
}

const throttleText = (list) => (list || []).map((entry) => `${entry.reason} ${format(entry.share, "part")}`).join(", ");
const standsOut = (group) => !group.outlier ? "" : group.normalized > 1 ? "slow" : "fast";

// Columns that any of the groups has a value for.
const groupColumns = (kind, groups) => [
  {title: kind, key: "name", text: true, cell: (g) => breakable(g.name)}, ...(kind === "device" ? [{title: "node", key: "node", text: true, cell: (g) => breakable(g.node)}] : []),
  ...(kind === "cabinet" ? [] : [{title: "cabinet", key: "cabinet", text: true, cell: (g) => breakable(g.cabinet)}]), {title: "runs", key: "runs"}, {title: "median iteration", key: "median_s", unit: "s"},
  {title: "of the median", key: "normalized", cell: (g) => percent(g.normalized - 1)}, {title: "clock", key: "clock_mhz", unit: "MHz"}, {title: "temperature", key: "temperature_c", unit: "°C"},
  {title: "power", key: "power_w", unit: "W"}, {title: "deviation of runs", key: "run_deviation", unit: "part"}, {title: "deviation of iterations", key: "iteration_deviation", unit: "part"},
  {title: "throttled by", get: (g) => throttleText(g.throttle), text: true}, {title: "changes", get: (g) => g.changes || null}, {title: "runs outside", get: (g) => g.outlier_runs || null},
  {title: "speed", get: (g) => g.score, cell: (g) => two(g.score)},
  {title: kind === "device" ? "class" : "stands out", get: (g) => g.class || standsOut(g), text: true, mark: (g) => ({fast: "better", normal: "", unknown: "", "": ""})[g.class || standsOut(g)] ?? "worse"},
  {title: "why", get: (g) => g.why || "", text: true},
].filter((column) => isKnown(column, groups));
// Whether any row has a value in a column.
const isKnown = (column, rows) => rows.some((row) => { const value = valueOf(column, row); return column.text ? value : isNumber(value); });
const groupTable = (id, caption, kind, level) => table(id, caption, groupColumns(kind, level.groups), level.groups);

const two = (value) => isNumber(value) ? value.toFixed(2).replace(/^-(0\.00)$/, "$1") : "–";
const words = {clock_mhz: "Clock", memory_clock_mhz: "Memory clock", temperature_c: "Temperature", power_w: "Power"};
const units = {clock_mhz: "MHz", memory_clock_mhz: "MHz", temperature_c: "°C", power_w: "W"};

// The course of runs whose speed changed.
function changeCharts(doc) {
  const most = 12, changed = doc.runs.filter((run) => run.change && (run.change.over_time || []).length);
  return changed.slice(0, most).map((run, index) => chart("change-" + index, {
    title: `${run.device}, ${run.run}`, note: `${percent(run.change.by)} after ${format(run.change.at, "part")}${run.change.cause ? ": " + run.change.cause : ""}${changed.length > most && index === 0 ? `; the first ${most} of ${changed.length}` : ""}`,
    x: "part of the run", xUnit: "part", marks: [{x: run.change.at}],
    sets: [{label: "iteration time, 1 is the median over all devices", index: 0, points: run.change.over_time.map((y, place) => ({x: (place + 0.5) / run.change.over_time.length, y}))}]}));
}

// How many of a level stand out, if there are enough to tell. Documents of version 1 do not say.
function standTile(tile, name, level) {
  if (!level.groups.length || (level.tested === false && name !== "devices")) return null;
  const count = level.groups.filter((group) => group.outlier).length;
  return tile(`${name} that stand out`, level.tested === false ? "–" : String(count), level.tested === undefined ? "outside the whiskers" : level.tested ? "beyond chance" : "too few to tell");
}

function renderVariability(doc) {
  const tile = (name, value, small) => el("div", {class: "tile"}, el("dt", {}, name), el("dd", {}, value, el("small", {}, small)));
  const changed = doc.runs.filter((run) => run.change).length, deviations = doc.deviations || {};
  const deviation = ["iterations", "runs", "devices"].filter((key) => isNumber(deviations[key]))
    .map((key) => `${format(deviations[key], "part")} ${{iterations: "within runs", runs: "between runs of a device", devices: "between devices"}[key]}`);
  const runs = doc.run_count ?? doc.runs.length, missing = runs > doc.runs.length;
  const nodes = doc.devices.groups.some((group) => group.node !== group.name);  // else each device is its own
  const many = doc.devices.groups.length > mostBoxes;
  const scatter = doc.correlations.map((entry) => chart("with-" + entry.with, {
    title: `${words[entry.with]} and iteration time`, x: words[entry.with], xUnit: units[entry.with], scatter: true,
    note: isNumber(entry.pearson) ? `Pearson ${two(entry.pearson)}${entry.coverage ? ` (95%: ${two(entry.low)} to ${two(entry.high)})` : ""}, Spearman ${two(entry.spearman)}` : entry.pairs < 3 ? "too few runs to correlate" : "one side does not vary",
    sets: [{label: "run", index: 0, only: true, dots: doc.runs.length > 200 ? 2 : 3, points: doc.runs.filter((run) => isNumber(run[entry.with]))
      .map((run) => ({x: run[entry.with], y: run.normalized, name: `${run.device}, ${run.run}`})).sort((a, b) => a.x - b.x)}]}));
  const sections = [
    section("spread", "Spread", charts(allTogether(doc), many ? rankChart(doc.devices) : null, boxChart("devices", "Iteration time by device", doc.devices, doc.runs, (run) => run.device),
      doc.cabinets.groups.length ? boxChart("cabinets", "Iteration time by cabinet", doc.cabinets, doc.runs, (run) => run.cabinet) : null)),
    section("correlation", "What goes along with it", charts(scatter)),
    section("changes", "Changes within runs", charts(changeCharts(doc))),
    section("groups", "Devices, nodes, cabinets", groupTable("devices", "Devices", "device", doc.devices), nodes ? groupTable("nodes", "Nodes", "node", doc.nodes) : null, groupTable("cabinets", "Cabinets", "cabinet", doc.cabinets)),
    section("runs", "Runs", table("all-runs", "Runs", [{title: "run", key: "run", text: true}, {title: "device", key: "device", text: true}, {title: "median", key: "median_s", unit: "s"},
      {title: "mean", key: "mean_s", unit: "s"}, {title: "fastest", key: "min_s", unit: "s"}, {title: "slowest", key: "max_s", unit: "s"}, {title: "of the median", key: "normalized", cell: (r) => percent(r.normalized - 1)},
      {title: "clock", key: "clock_mhz", unit: "MHz"}, {title: "temperature", key: "temperature_c", unit: "°C"}, {title: "power", key: "power_w", unit: "W"}].filter((column) => isKnown(column, doc.runs)), doc.runs)),
  ].filter(Boolean);
  return {
    title: "Variability between devices", sections,
    words: [el("p", {class: "soft"}, `${counted(runs, "run")} on ${counted(doc.devices.groups.length, "device")}${nodes ? ` of ${counted(doc.nodes.groups.length, "node")}` : ""}${doc.cabinets.groups.length ? ` in ${counted(doc.cabinets.groups.length, "cabinet")}` : ""}`)],
    content: [el("dl", {class: "tiles"}, tile("over runs", format(doc.box.variability, "part"), "whisker to whisker, of the median"),
      doc.devices.groups.length > 1 ? tile("over devices", format(doc.devices.box.variability, "part"), "of their medians") : null,
      standTile(tile, "devices", doc.devices), standTile(tile, "nodes", doc.nodes), standTile(tile, "cabinets", doc.cabinets),
      changed ? tile("runs whose speed changed", String(changed), "within them") : null),
      doc.problems.length ? el("ul", {class: "warnings"}, doc.problems.map((text) => el("li", {}, text))) : null, ...sections],
    note: `Redline ${doc.program.version} (${doc.program.commit}), ${doc.generated}. Times are medians of a run's iterations without the first, divided by the median over all devices.`
      + (missing ? ` The charts and the table of runs have ${plain(doc.runs.length)} of the ${plain(runs)} runs, evenly chosen; all_data.csv has all of them.` : "")
      + (deviation.length ? ` Standard deviations, as parts of the median: ${deviation.join(", ")}.` : ""),
  };
}
