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
function evaluationSets(doc, field) {
  const sets = [];
  for (const run of drawn(doc)) {
    const at = place(doc, run);
    for (const weights of [...new Set(run.evaluations.map((e) => e.weights))]) {
      const of = run.evaluations.filter((e) => e.weights === weights);
      const label = ["validation", weights === "model" ? "" : short(weights), several(doc) ? run.label : ""].filter(Boolean).join(", ");
      sets.push({label, points: of.map((e) => ({x: at(e.step), y: e[field]})), index: several(doc) ? run.index : 1 + sets.length, dots: true, dashed: several(doc), unnamed: several(doc)});
    }
  }
  return sets;
}

function learning(doc) {
  const step = axis(doc), dots = several(doc) ? "dashed with dots: validation" : "";
  const mixed = drawn(doc).some(lossOf) ? "a training loss with label smoothing or mixed images is another quantity than the validation loss" : "";
  const training = (run) => [several(doc) ? "" : "training", lossOf(run)].filter(Boolean).join(", ");
  return section("learning", "Learning", charts(
    chart("loss", {...step, title: "Loss", log: true, robust: true, note: [dots, mixed].filter(Boolean).join("; "),
      sets: [...stepSets(doc, "loss", {label: training, smooth: true}), ...evaluationSets(doc, "loss")]}),
    chart("accuracy", {...step, title: "Top-1 accuracy", unit: "part", note: dots, sets: [...stepSets(doc, "top1", {label: several(doc) ? "" : "training", smooth: true}), ...evaluationSets(doc, "top1")]}),
    chart("lr", {...step, title: "Learning rate", log: true, zero: true, sets: stepSets(doc, "lr")}),
    chart("gradient_norm", {...step, title: "Gradient norm", log: true, robust: true, sets: stepSets(doc, "gradient_norm", {smooth: true})}),
    chart("loss_scale", {...step, title: "Loss scale", log: true, sets: stepSets(doc, "loss_scale")})));
}

function histogramSets(doc) {
  return drawn(doc).map((run) => {
    const h = run.step_time && run.step_time.histogram;
    if (!h) return {label: run.label, points: [], index: run.index};
    const width = (h.high - h.low) / h.counts.length || h.low / 100, all = h.counts.reduce((a, b) => a + b, 0) + h.above;
    const list = h.counts.map((count, bin) => ({x: 1e3 * (h.low + bin * width), y: count / all}));
    list.push({x: 1e3 * (h.low + h.counts.length * width), y: 0});
    list.unshift({x: 1e3 * h.low, y: 0});
    return {label: run.label, points: list, index: run.index, stepped: true, fill: true};
  });
}

// Warm-up steps are long and say nothing about the rest: they are mentioned, not drawn.
function warmUp(doc) {
  const steps = drawn(doc).flatMap((run) => run.warm_up || []), longest = Math.max(...steps.map((step) => step.seconds || 0));
  if (!steps.length) return "";
  return steps.length === 1 ? `without the warm-up step (${format(longest, "s")})` : `without ${steps.length} warm-up steps (the longest ${format(longest, "s")})`;
}

function speed(doc) {
  const step = axis(doc), quantiles = doc.runs.map((run) => ({run, ...run.step_time})).filter((row) => row.count);
  const beyond = drawn(doc).reduce((sum, run) => sum + (run.step_time ? run.step_time.histogram.above : 0), 0);
  return section("speed", "Speed", charts(
    chart("images_per_second", {...step, title: "Images per second", zero: true, robust: true, note: warmUp(doc), sets: stepSets(doc, "images_per_second", {smooth: true})}),
    chart("seconds", {...step, title: "Step time", unit: "s", zero: true, robust: true, log: true, note: warmUp(doc), sets: stepSets(doc, "seconds", {smooth: true})}),
    chart("step_time", {x: "step time", xUnit: "ms", unit: "part", title: "Distribution of step times", zero: true,
      note: beyond ? `up to the 99th percentile; ${beyond === 1 ? "1 longer step is" : beyond + " longer steps are"} not drawn` : "", sets: histogramSets(doc)}),
    chart("data_wait", {...step, title: "Waiting for data", note: "part of the time, evaluations left out", unit: "part", zero: true, sets: stepSets(doc, "data_wait", {smooth: true})})),
    timeSplit(doc),
    table("quantiles", "Step times, without warm-up steps", [
      ...(several(doc) ? [{title: "run", get: (r) => r.run.name, text: true, cell: (r) => runCell(r.run)}] : []),
      {title: "steps", key: "count"}, {title: "fastest", key: "min", unit: "s"}, {title: "median", key: "median", unit: "s"},
      {title: "95% interval of the median", get: (r) => r.median_interval.high - r.median_interval.low,
        cell: (r) => r.median_interval.coverage >= 0.949 ? `${format(r.median_interval.low, "s")} to ${format(r.median_interval.high, "s")}` : "too few or too uneven steps"},
      {title: "90%", key: "p90", unit: "s"}, {title: "99%", key: "p99", unit: "s"}, {title: "slowest", key: "max", unit: "s"},
      {title: "mean", key: "mean", unit: "s"}], quantiles));
}

// Where a run's time went, by the device's clock: steps, and idle time between them by cause.
const causes = [["step", "steps"], ["data", "waiting for data"], ["host", "host late"], ["exchange", "waiting for other ranks"],
  ["evaluation", "evaluation"], ["checkpoint", "checkpoints"]];
const causeColours = [2, 1, 3, 4, 0, 5];

function timeSplit(doc) {
  const rows = doc.runs.filter((run) => run.time).map((run) => ({run, ...run.time, total: causes.reduce((sum, [key]) => sum + (run.time[key] || 0), 0)})).filter((row) => row.total > 0);
  if (!rows.length) return null;
  const used = causes.map(([key, text], index) => ({key, text, index: causeColours[index]})).filter(({key}) => rows.some((row) => row[key] > 0));
  const stack = (row) => el("span", {class: "stack", "aria-hidden": "true"}, used.map(({key, index}) => {
    const part = el("span");
    part.style.width = `${100 * (row[key] || 0) / row.total}%`;
    part.style.backgroundColor = colour(index);
    return part;
  }));
  const run = drawn(doc)[0], split = !several(doc) && run && run.series.split, at = split ? place(doc, run) : null;
  return el("div", {},
    split && used.length > 1 ? charts(chart("split", {...axis(doc), title: "Where the time went", note: "seconds a step, means over stretches of the run", unit: "s", zero: true, stacked: true, wide: true,
      sets: used.filter(({key}) => split[key]).map(({key, text, index}) => ({label: text, index, points: split.x.map((x, i) => ({x: at(Math.round(x)), y: split[key][i]}))}))})) : null,
    table("time-split", "Where the time went", [
      {title: several(doc) ? "run" : "shares", get: (row) => row.run.name, text: true, cell: (row) => el("div", {class: "split"}, several(doc) ? runCell(row.run) : null, stack(row))},
      ...used.map(({key, text, index}) => ({title: text, head: el("span", {}, swatch(index), text), get: (row) => row[key] || 0,
        cell: (row) => el("span", {}, format((row[key] || 0) / row.total, "part"), el("small", {class: "change soft"}, format(row[key] || 0, "s")))})),
      {title: "in all", key: "total", unit: "s"}], rows));
}

function communication(doc) {
  const ranked = doc.runs.filter((run) => run.ranks > 1);
  if (!ranked.length) return null;
  const slowest = ranked.flatMap((run) => run.slowest_ranks.map((steps, rank) => ({run: run.name, rank, steps, share: steps / Math.max(1, run.slowest_ranks.reduce((a, b) => a + b, 0))})));
  const speeds = doc.runs.filter((run) => isNumber(run.summary.images_per_second)).map((run) => ({x: run.ranks, y: run.summary.images_per_second, name: run.label})).sort((a, b) => a.x - b.x);
  const first = speeds[0], last = speeds[speeds.length - 1];
  return section("communication", "Communication and scaling", charts(
    chart("communication", {...axis(doc), title: "Waiting for other ranks", note: "part of the training time, mean over ranks", unit: "part", zero: true, sets: stepSets(doc, "communication", {smooth: true})}),
    several(doc) && last && first.x < last.x ? chart("scaling", {x: "ranks", title: "Images per second by ranks", scatter: true, zero: true, sets: [{label: "measured", points: speeds, index: 0, dots: 4, only: true, solid: true},
      {label: "as fast as the first on each", points: [first.x, last.x].map((x) => ({x, y: first.y / first.x * x})), index: 5, dashed: true}]}) : null),
    table("slowest", "Which rank the others waited for", [...(several(doc) ? [{title: "run", key: "run", text: true}] : []), {title: "rank", key: "rank"}, {title: "steps", key: "steps"},
      {title: "share", key: "share", unit: "part"}], slowest));
}

const mostWarnings = 10;
function warnings(doc) {
  const lines = [];
  const say = (run, text) => lines.push(el("li", {}, (several(doc) ? run.label + ": " : "") + text));
  for (const run of doc.runs) {
    if (run.state === "failed") say(run, "the run failed" + (run.detail ? ": " + run.detail : ""));
    if (run.state === "interrupted") say(run, "the run was interrupted" + (run.detail ? " by " + run.detail : "") + ` after step ${run.summary.steps} of ${run.summary.total_steps}`);
    if (run.state === "unfinished" && !live) say(run, "the run has no end: it still goes on, or was killed");
    for (const text of run.problems) say(run, text);
    for (const what of new Set(run.notices.map((notice) => notice.what))) {
      if (what === "disturbed") continue;  // among the disturbances below
      const [first, ...rest] = run.notices.filter((notice) => notice.what === what);
      say(run, (what === "bound" ? "" : `step ${plain(first.step)}: `) + first.text + (rest.length ? `; ${rest.length} more of this kind, the last at step ${plain(rest[rest.length - 1].step)}` : ""));
    }
    if (run.summary.skipped_steps) say(run, `${run.summary.skipped_steps === 1 ? "1 step was" : run.summary.skipped_steps + " steps were"} skipped: a gradient was not finite`);
    for (const checkpoint of run.checkpoints) if (checkpoint.error) say(run, `the checkpoint of step ${checkpoint.step} was not written: ${checkpoint.error}`);
    for (const held of run.summary.throttling || []) if (held.share > 0.05) say(run, `the clocks were held down for ${format(held.share, "part")} of the time: ${throttleWords[held.reason] || held.reason}`);
    for (const text of run.summary.disturbances || []) say(run, text);
    const stalls = run.summary.stalls;
    if (stalls) say(run, `${stalls.steps === 1 ? "1 step" : plain(stalls.steps) + " steps"} took over 5 times the median: ${duration(stalls.seconds)} lost, ${format(stalls.share, "part")} of the time (the longest: step ${plain(stalls.longest_step)}, ${duration(stalls.longest_seconds)})`);
    if (run.summary.data_wait > 0.1) say(run, `${format(run.summary.data_wait, "part")} of the training time was spent waiting for data`);
  }
  if (!lines.length) return null;
  const shown = lines.length > mostWarnings + 2 ? lines.splice(0, mostWarnings) : lines.splice(0);
  return el("div", {class: "warnings"}, el("ul", {"aria-label": "Warnings"}, shown),
    lines.length ? el("details", {}, el("summary", {}, `${lines.length} more warnings`), el("ul", {}, lines)) : null);
}

function records(doc) {
  const rows = (field) => doc.runs.flatMap((run, index) => run[field].map((row) => ({...row, run: run.name, name: run.name, index})));
  const name = several(doc) ? [{title: "run", key: "run", text: true, cell: (r) => runCell(r)}] : [];
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
      el("div", {class: "columns"}, [listing(`info-${index}`, "Run", info), listing(`facts-${index}`, "Machine and versions", run.facts.map(([key, value]) => [key.replaceAll("_", " "), value])), listing(`options-${index}`, "Options", run.options)].filter(Boolean)));
  });
  return section("run", "What was run", parts);
}

function renderReport(doc) {
  nameRuns(doc);
  const title = several(doc) ? `${doc.runs.length} runs compared` : doc.runs[0].name, first = doc.runs[0];
  const words = [first.info.model, first.info.data && `on ${first.info.data}`, first.info.device, first.info.dtype].filter(Boolean).join(", ");
  const compared = comparison(doc), sections = [compared, learning(doc), speed(doc), profileSection(doc), communication(doc), device(doc), records(doc), whatWasRun(doc)].filter(Boolean);
  return {
    title,
    words: [el("p", {class: "soft long"}, several(doc) ? whole(doc.runs.map((run) => short(run.name)).join(", ")) : words),
      several(doc) ? null : el("p", {}, stateOf(first), " ", el("span", {class: "soft"}, first.info.started ? "started " + first.info.started : ""))],
    content: [overview(doc), warnings(doc), compared, controls(doc), ...sections.filter((part) => part !== compared)], sections,
    note: `Redline ${doc.program.version} (${doc.program.commit}), ${doc.generated}.` + (doc.thinned ? " Long series are thinned for drawing: the lowest and the highest value of each stretch stay." : ""),
  };
}
