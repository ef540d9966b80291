// The sections of a report on runs.

const section = (id, title, ...content) => {
  const shown = content.flat().filter(Boolean);
  return shown.length ? el("section", {id, "aria-labelledby": id + "-title"}, el("h2", {id: id + "-title"}, title), shown) : null;
};
const charts = (...list) => {
  const shown = list.flat().filter(Boolean);
  return shown.length ? el("div", {class: "charts"}, shown) : null;
};
const swatch = (index) => {
  const node = el("span", {class: "swatch", "aria-hidden": "true"});
  node.style.backgroundColor = colour(index);
  return node;
};
const short = (name) => name.length > 60 ? name.slice(0, 59) + "…" : name;
const several = (doc) => doc.runs.length > 1;

// A line of each run, its raw values faint behind a smooth one where there is one.
function stepSets(doc, name, options) {
  const sets = [];
  doc.runs.forEach((run, index) => {
    const raw = run.series[name], smooth = options && options.smooth ? run.series[name + "_smooth"] : null;
    const long = raw && raw.x.length > 300 && smooth;
    const label = (options && options.label ? options.label + (several(doc) ? ", " : "") : several(doc) ? "" : name) + (several(doc) ? short(run.name) : "");
    if (raw) sets.push({label: long ? label + " (each step)" : label, points: points(raw), index, faint: Boolean(long)});
    if (long) sets.push({label, points: points(smooth), index});
  });
  return sets;
}

function evaluationSets(doc, field) {
  const sets = [];
  doc.runs.forEach((run, index) => {
    for (const weights of [...new Set(run.evaluations.map((e) => e.weights))]) {
      const of = run.evaluations.filter((e) => e.weights === weights);
      const label = "validation" + (weights === "model" || weights === "" ? "" : ", " + short(weights)) + (several(doc) ? ", " + short(run.name) : "");
      sets.push({label, points: of.map((e) => ({x: e.step, y: e[field]})), index: several(doc) ? index : 1 + sets.length, dots: true, dashed: several(doc)});
    }
  });
  return sets;
}

function learning(doc) {
  const step = {x: "step", link: "step"};
  return section("learning", "Learning", charts(
    chart("loss", {...step, title: "Loss", log: true, sets: [...stepSets(doc, "loss", {label: "training", smooth: true}), ...evaluationSets(doc, "loss")]}),
    chart("accuracy", {...step, title: "Top-1 accuracy", unit: "part", sets: [...stepSets(doc, "top1", {label: "training", smooth: true}), ...evaluationSets(doc, "top1")]}),
    chart("lr", {...step, title: "Learning rate", log: true, zero: true, sets: stepSets(doc, "lr")}),
    chart("gradient_norm", {...step, title: "Gradient norm", log: true, sets: stepSets(doc, "gradient_norm", {smooth: true})}),
    chart("loss_scale", {...step, title: "Loss scale", log: true, sets: stepSets(doc, "loss_scale")})));
}

function histogramSets(doc) {
  return doc.runs.map((run, index) => {
    const h = run.step_time && run.step_time.histogram;
    if (!h) return {label: run.name, points: [], index};
    const width = (h.high - h.low) / h.counts.length || h.low / 100, all = h.counts.reduce((a, b) => a + b, 0) + h.above;
    const list = h.counts.map((count, bin) => ({x: 1e3 * (h.low + bin * width), y: count / all}));
    list.push({x: 1e3 * (h.low + h.counts.length * width), y: 0});
    list.unshift({x: 1e3 * h.low, y: 0});
    return {label: short(run.name), points: list, index, stepped: true, fill: true};
  });
}

function speed(doc) {
  const step = {x: "step", link: "step"};
  const quantiles = doc.runs.map((run, index) => ({run, index, ...run.step_time})).filter((row) => row.count);
  const beyond = doc.runs.reduce((sum, run) => sum + (run.step_time ? run.step_time.histogram.above : 0), 0);
  return section("speed", "Speed", charts(
    chart("images_per_second", {...step, title: "Images per second", zero: true, sets: stepSets(doc, "images_per_second", {smooth: true})}),
    chart("seconds", {...step, title: "Step time", unit: "s", zero: true, log: true, sets: stepSets(doc, "seconds", {smooth: true})}),
    chart("step_time", {x: "step time", xUnit: "ms", unit: "part", title: "Distribution of step times", zero: true,
      note: beyond ? `up to the 99th percentile; ${beyond} longer steps are not drawn` : "", sets: histogramSets(doc)}),
    chart("data_wait", {...step, title: "Waiting for data", note: "part of the step", unit: "part", zero: true, sets: stepSets(doc, "data_wait", {smooth: true})})),
    table("quantiles", "Step times, without the step that each process warms up with", [
      ...(several(doc) ? [{title: "run", get: (r) => r.run.name, text: true, cell: (r) => el("span", {}, swatch(r.index), r.run.name)}] : []),
      {title: "steps", key: "count"}, {title: "fastest", key: "min", unit: "s"}, {title: "median", key: "median", unit: "s"},
      {title: "95% interval of the median", get: (r) => r.median_interval.high - r.median_interval.low,
        cell: (r) => r.median_interval.coverage >= 0.949 ? `${format(r.median_interval.low, "s")} to ${format(r.median_interval.high, "s")}` : "too few steps"},
      {title: "90%", key: "p90", unit: "s"}, {title: "99%", key: "p99", unit: "s"}, {title: "slowest", key: "max", unit: "s"},
      {title: "mean", key: "mean", unit: "s"}], quantiles));
}

function communication(doc) {
  const ranked = doc.runs.filter((run) => run.ranks > 1);
  if (!ranked.length) return null;
  const slowest = ranked.flatMap((run) => run.slowest_ranks.map((steps, rank) => ({run: run.name, rank, steps, share: steps / Math.max(1, run.slowest_ranks.reduce((a, b) => a + b, 0))})));
  const speeds = doc.runs.filter((run) => isNumber(run.summary.images_per_second)).map((run) => ({x: run.ranks, y: run.summary.images_per_second, name: short(run.name)})).sort((a, b) => a.x - b.x);
  const first = speeds[0], last = speeds[speeds.length - 1];
  return section("communication", "Communication and scaling", charts(
    chart("communication", {x: "step", link: "step", title: "Waiting for other ranks", note: "part of the step, mean over ranks", unit: "part", zero: true, sets: stepSets(doc, "communication", {smooth: true})}),
    several(doc) && last && first.x < last.x ? chart("scaling", {x: "ranks", title: "Images per second by ranks", scatter: true, zero: true, sets: [{label: "measured", points: speeds, index: 0, dots: 4, only: true},
      {label: "as fast as the first on each", points: [first.x, last.x].map((x) => ({x, y: first.y / first.x * x})), index: 5, dashed: true}]}) : null),
    table("slowest", "Which rank the others waited for", [...(several(doc) ? [{title: "run", key: "run", text: true}] : []), {title: "rank", key: "rank"}, {title: "steps", key: "steps"},
      {title: "share", key: "share", unit: "part"}], slowest.slice(0, 1000)));
}

// Columns of telemetry that are drawn together, in the units that people use.
const sensors = [
  {id: "clock", title: "Clock", unit: "MHz", columns: [["gpu_sm_clock_mhz", "GPU"], ["gpu_memory_clock_mhz", "GPU memory"], ["cpu_clock_mhz", "CPU"]]},
  {id: "power", title: "Power", unit: "W", scale: 1e-3, zero: true, columns: [["gpu_power_mw", "GPU"], ["gpu_power_limit_mw", "GPU limit"], ["cpu_power_mw", "CPU"]]},
  {id: "temperature", title: "Temperature", unit: "°C", columns: [["gpu_temperature_c", "GPU"], ["cpu_temperature_c", "CPU"]]},
  {id: "use", title: "Use of the device", unit: "part", scale: 1e-2, zero: true, columns: [["gpu_use_pct", "GPU"], ["gpu_memory_use_pct", "GPU memory moving"]]},
  {id: "cores", title: "Processors kept busy", zero: true, columns: [["cpu_use", "CPU"]]},
  {id: "memory", title: "Memory in use", unit: "B", zero: true, columns: [["gpu_memory_used_bytes", "GPU"], ["memory_resident_bytes", "process"]]},
  {id: "pcie", title: "PCIe traffic", unit: "B/s", scale: 1e3, zero: true, columns: [["pcie_received_kb_s", "to the GPU"], ["pcie_sent_kb_s", "from the GPU"]]},
];

const throttleWords = {sw_power_cap: "power limit", hw_slowdown: "hardware slowdown", sync_boost: "other cards' clocks", sw_thermal: "heat", hw_thermal: "heat (hardware)",
  power_brake: "power brake", app_clocks: "set clocks", display_clocks: "display clocks"};

function throttleMarks(telemetry) {
  const list = [];
  telemetry.throttle.forEach((mark, index) => {
    // An idle device, or one at the clocks it was told to have, is not held back.
    if (mark.text.split("|").every((word) => ["none", "idle", "app_clocks", "display_clocks"].includes(word))) return;
    const next = telemetry.throttle[index + 1];
    list.push({x: mark.seconds, to: next ? next.seconds : telemetry.last, text: mark.text.split("|").map((word) => throttleWords[word] || word).join(", ")});
  });
  return list;
}

const nameOfSource = (telemetry) => telemetry.rank === "" || telemetry.rank === undefined ? telemetry.source : `rank ${telemetry.rank}`;

function device(doc) {
  const sources = [];
  doc.runs.forEach((run, index) => run.telemetry.forEach((telemetry) => sources.push({run, index, telemetry})));
  if (!sources.length) return null;
  const ranked = sources.some((source) => source.run.telemetry.length > 1);
  const throttled = sources.flatMap((source) => throttleMarks(source.telemetry).map((mark) => ({run: source.run.name, source: nameOfSource(source.telemetry), ...mark})));
  const list = sensors.map((sensor) => {
    const sets = [];
    for (const {run, index, telemetry} of sources) {
      const prefix = (several(doc) ? short(run.name) + ", " : "") + (run.telemetry.length > 1 ? nameOfSource(telemetry) + ", " : "");
      for (const [name, label] of sensor.columns) {
        const series = telemetry.columns[name];
        if (!series) continue;
        sets.push({label: prefix + label, points: points(series).map((p) => ({x: p.x, y: p.y === null ? null : p.y * (sensor.scale || 1)})),
          index: several(doc) ? index : sets.length, dashed: name.includes("limit") || name.includes("memory_clock")});
      }
    }
    return chart("device-" + sensor.id, {title: sensor.title, x: "time", xUnit: "s", unit: sensor.unit, zero: sensor.zero, link: "seconds", sets,
      marks: several(doc) ? [] : throttled, note: throttled.length && !several(doc) ? `shaded where the clocks were held down${ranked ? ", on any device" : ""}` : ""});
  });
  return section("device", "Device", charts(list), ranked ? deviceTable(doc, sources) : null, table("throttle", "When the clocks were held down", [
    ...(several(doc) ? [{title: "run", key: "run", text: true}] : []), ...(ranked ? [{title: "where", key: "source", text: true}] : []), {title: "from", key: "x", unit: "s"}, {title: "to", key: "to", unit: "s"},
    {title: "why", key: "text", text: true}], throttled));
}

// Of several processes, a row each: where it runs, and what is usual there.
function deviceTable(doc, sources) {
  const middle = (telemetry, ...names) => {
    const series = names.map((name) => telemetry.columns[name]).find(Boolean), values = series ? series.y.filter(isNumber).sort((a, b) => a - b) : [];
    return values.length ? values[values.length >> 1] : null;
  };
  const watts = (telemetry) => { const value = middle(telemetry, "gpu_power_mw", "cpu_power_mw"); return value === null ? null : value / 1000; };
  return table("devices", "Devices, by medians", [...(several(doc) ? [{title: "run", get: (s) => s.run.name, text: true}] : []),
    {title: "rank", get: (s) => nameOfSource(s.telemetry), text: true}, {title: "host", get: (s) => s.telemetry.host || "", text: true}, {title: "device", get: (s) => s.telemetry.device || "", text: true},
    {title: "clock", get: (s) => middle(s.telemetry, "gpu_sm_clock_mhz", "cpu_clock_mhz"), unit: "MHz"}, {title: "power", get: (s) => watts(s.telemetry), unit: "W"},
    {title: "temperature", get: (s) => middle(s.telemetry, "gpu_temperature_c", "cpu_temperature_c"), unit: "°C"},
    {title: "memory", get: (s) => middle(s.telemetry, "gpu_memory_used_bytes", "memory_resident_bytes"), unit: "B"}], sources);
}

function warnings(doc) {
  const lines = [];
  const say = (run, text) => lines.push(el("li", {}, (several(doc) ? short(run.name) + ": " : "") + text));
  for (const run of doc.runs) {
    if (run.state === "failed") say(run, "the run failed" + (run.detail ? ": " + run.detail : ""));
    if (run.state === "interrupted") say(run, "the run was interrupted" + (run.detail ? " by " + run.detail : "") + ` after step ${run.summary.steps} of ${run.summary.total_steps}`);
    if (run.state === "unfinished" && !live) say(run, "the run has no end: it still goes on, or was killed");
    for (const text of run.problems) say(run, text);
    for (const notice of run.notices) say(run, `step ${notice.step}: ${notice.text}`);
    if (run.summary.skipped_steps) say(run, `${run.summary.skipped_steps} steps were skipped: a gradient was not finite`);
    for (const checkpoint of run.checkpoints) if (checkpoint.error) say(run, `the checkpoint of step ${checkpoint.step} was not written: ${checkpoint.error}`);
    if (run.summary.data_wait > 0.1) say(run, `${format(run.summary.data_wait, "part")} of the training time was spent waiting for data`);
  }
  return lines.length ? el("ul", {class: "warnings", "aria-label": "Warnings"}, lines) : null;
}

function tiles(run) {
  const s = run.summary, list = [];
  const tile = (name, value, small) => list.push(el("div", {class: "tile"}, el("dt", {}, name), el("dd", {}, value, small ? el("small", {}, small) : null)));
  const between = s.images_per_second_interval;
  if (isNumber(s.images_per_second))
    tile("images per second", plain(s.images_per_second), between && between.coverage >= 0.949 ? `${plain(between.low)} to ${plain(between.high)} (95%)` : "");
  if (run.step_time) tile("median step", format(run.step_time.median, "s"), `99% within ${format(run.step_time.p99, "s")}`);
  if (s.best_evaluation) tile("best top-1", format(s.best_evaluation.top1, "part"), `step ${s.best_evaluation.step}, ${plain(s.best_evaluation.samples)} images`);
  if (isNumber(s.final_loss)) tile("training loss", plain(s.final_loss), "mean of the last steps");
  if (isNumber(s.data_wait)) tile("waiting for data", format(s.data_wait, "part"), "of the training time");
  if (isNumber(s.power_w)) tile("mean power", format(s.power_w, "W"), isNumber(s.images_per_second) ? `${plain(s.images_per_second / s.power_w)} images per joule` : "");
  if (isNumber(s.temperature_c)) tile("highest temperature", format(s.temperature_c, "°C"));
  if (isNumber(s.memory_bytes)) tile("most memory", format(s.memory_bytes, "B"));
  tile("steps", plain(s.steps), s.total_steps ? `of ${plain(s.total_steps)}` : "");
  tile("duration", duration(s.seconds), s.resumes ? `resumed ${s.resumes} times` : "");
  return el("dl", {class: "tiles"}, list);
}

const stateOf = (run) => el("span", {class: "state " + run.state}, live && run.state === "unfinished" ? "running" : run.state);

function overview(doc) {
  if (!several(doc)) return tiles(doc.runs[0]);
  return table("runs", "Runs", [
    {title: "run", get: (r) => r.name, text: true, cell: (r) => el("span", {}, swatch(doc.runs.indexOf(r)), r.name)},
    {title: "state", get: (r) => r.state, text: true, cell: stateOf}, {title: "model", get: (r) => r.info.model, text: true},
    {title: "device", get: (r) => r.info.device, text: true}, {title: "type", get: (r) => r.info.dtype, text: true},
    {title: "batch", get: (r) => r.info.batch_size * r.info.accumulate * r.ranks}, ...(doc.runs.some((run) => run.ranks > 1) ? [{title: "ranks", get: (r) => r.ranks}] : []), {title: "images/s", get: (r) => r.summary.images_per_second},
    {title: "median step", get: (r) => r.step_time ? r.step_time.median : null, unit: "s"},
    {title: "best top-1", get: (r) => r.summary.best_evaluation ? r.summary.best_evaluation.top1 : null, unit: "part"},
    {title: "steps", get: (r) => r.summary.steps}, {title: "duration", get: (r) => r.summary.seconds, unit: "s"}], doc.runs);
}

function comparison(doc) {
  if (!several(doc)) return null;
  const base = doc.runs[0], columns = [{title: "what", key: "name", text: true}];
  doc.runs.forEach((run, index) => {
    columns.push({title: short(run.name), get: (row) => row.values[index],
      cell: (row) => format(row.values[index], row.unit === "" && row.name.includes("top-1") ? "part" : row.unit)});
    if (index === 0) return;
    columns.push({title: "change", get: (row) => changeOf(row, index).value, cell: (row) => changeOf(row, index).text, mark: (row) => changeOf(row, index).mark});
  });
  const words = doc.comparison.flatMap((row) => row.changes.map((change, index) => change && change.beyond_noise ? {row, change, index} : null)).filter(Boolean)
    .filter(({row}) => row.name !== "median step")
    .map(({row, change, index}) => el("li", {}, `${short(doc.runs[index].name)}: ${row.name} ${percent(change.change)} (95%: ${percent(change.interval.low)} to ${percent(change.interval.high)}).`));
  return section("comparison", "Comparison",
    el("p", {class: "soft"}, `Changes are against ${short(base.name)}. A change is marked where its 95% interval leaves no change out; grey ones have an interval that does not, “one value” has no known noise.`),
    words.length ? el("div", {}, el("p", {}, "Beyond noise:"), el("ul", {}, words)) : el("p", {}, "Nothing that can be judged differs beyond noise."),
    table("changes", "What was measured", columns, doc.comparison),
    table("differences", "What was set differently", [{title: "option or fact", key: "name", text: true},
      ...doc.runs.map((run, index) => ({title: short(run.name), get: (row) => row.values[index], text: true}))], doc.differences));
}

function changeOf(row, index) {
  const before = row.values[0], now = row.values[index], change = row.changes[index];
  if (!isNumber(before) || !isNumber(now) || before === 0) return {value: null, text: "–", mark: ""};
  const value = change ? change.change : now / before - 1;
  if (!change) return {value, text: `${percent(value)} (one value)`, mark: "soft"};
  const between = `${percent(value)} (${percent(change.interval.low)} to ${percent(change.interval.high)})`;
  if (change.interval.coverage < 0.949) return {value, text: `${percent(value)} (too few steps)`, mark: "soft"};
  if (!change.beyond_noise) return {value, text: between, mark: "soft"};
  const good = row.better === "neither" ? null : (value > 0) === (row.better === "higher");
  return {value, text: between + (good === null ? "" : good ? ", better" : ", worse"), mark: good === null ? "" : good ? "better" : "worse"};
}

function records(doc) {
  const rows = (field) => doc.runs.flatMap((run, index) => run[field].map((row) => ({run: run.name, index, ...row})));
  const name = several(doc) ? [{title: "run", key: "run", text: true, cell: (r) => el("span", {}, swatch(r.index), r.run)}] : [];
  const tables = [
    table("evaluations", "Evaluations", [...name, {title: "step", key: "step"}, {title: "epoch", key: "epoch"}, {title: "weights", key: "weights", text: true},
      {title: "top-1", key: "top1", unit: "part"}, {title: "top-5", key: "top5", unit: "part"}, {title: "loss", key: "loss"}, {title: "took", key: "seconds", unit: "s"}], rows("evaluations")),
    table("checkpoints", "Checkpoints", [...name, {title: "step", key: "step"}, {title: "size", key: "bytes", unit: "B"}, {title: "stood still", key: "stall_seconds", unit: "s"},
      {title: "writing", key: "write_seconds", unit: "s"}, {title: "note", get: (r) => r.error || (r.best ? "best so far" : ""), text: true}], rows("checkpoints")),
  ].filter(Boolean);
  return section("records", "Evaluations and checkpoints", tables.length ? el("div", {class: "columns"}, tables) : null);
}

const quoted = (word) => /^[\w@%+=:,.\/-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'";

function whatWasRun(doc) {
  const parts = doc.runs.map((run, index) => {
    const info = Object.entries(run.info).filter(([key, value]) => value !== "" && value !== 0 && key !== "name").map(([key, value]) => [key.replaceAll("_", " "), String(value)]);
    const command = `redline train -c ${quoted(run.folder + "/config.toml")} --name again`;
    const copy = el("button", {type: "button", onclick: () => {
      if (navigator.clipboard) navigator.clipboard.writeText(command).then(() => { copy.textContent = "copied"; }, () => {});
    }}, "copy");
    return el("details", {open: several(doc) ? null : "open"}, el("summary", {}, several(doc) ? swatch(index) : "", several(doc) ? run.name : "Options and machine"),
      el("p", {}, "To repeat it: "), el("pre", {}, command), copy,
      el("div", {class: "columns"}, [listing("Run", info), listing("Machine and versions", run.facts.map(([key, value]) => [key.replaceAll("_", " "), value])), listing("Options", run.options)].filter(Boolean)));
  });
  return section("run", "What was run", parts);
}

function renderReport(doc) {
  const title = several(doc) ? `${doc.runs.length} runs compared` : doc.runs[0].name, first = doc.runs[0];
  const words = [first.info.model, first.info.data && `on ${first.info.data}`, first.info.device, first.info.dtype].filter(Boolean).join(", ");
  const sections = [comparison(doc), learning(doc), speed(doc), profileSection(doc), communication(doc), device(doc), records(doc), whatWasRun(doc)].filter(Boolean);
  return {
    title,
    words: [el("p", {class: "soft long"}, several(doc) ? doc.runs.map((run) => short(run.name)).join(", ") : words),
      several(doc) ? null : el("p", {}, stateOf(first), " ", el("span", {class: "soft"}, first.info.started ? "started " + first.info.started : ""))],
    content: [overview(doc), warnings(doc), ...sections], sections,
    note: `Redline ${doc.program.version} (${doc.program.commit}), ${doc.generated}.` + (doc.thinned ? " Long series are thinned for drawing: the lowest and the highest value of each stretch stay." : ""),
  };
}
