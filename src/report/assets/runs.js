// The runs at a glance: numbers of one, a table of many, and how they compare.

const several = (doc) => doc.runs.length > 1;
const short = (name) => name.length > 60 ? name.slice(0, 59) + "…" : name;

// Each run gets its place, which is its colour, and a label: its name, its folder too where names repeat, without what
// long names have in common.
function nameRuns(doc) {
  const count = (name) => doc.runs.filter((run) => run.name === name).length;
  const names = doc.runs.map((run) => count(run.name) > 1 && run.folder ? run.folder.split("/").filter(Boolean).slice(-2).join("/") : run.name);
  const words = names.map((name) => name.split(/(?<=[-_\/])/));
  let same = 0;
  if (several(doc) && names.some((name) => name.length > 24))
    while (words.every((list) => same < list.length - 1 && list[same] === words[0][same])) ++same;
  doc.runs.forEach((run, index) => {
    run.index = index;
    run.label = short((same ? "…" : "") + words[index].slice(same).join(""));
  });
}

const runCell = (run) => el("span", {class: "name"}, swatch(run.index), breakable(short(run.name)));
const runHead = (run) => el("span", {class: "name"}, swatch(run.index), breakable(run.label));
const optionOf = (run, name) => (run.options.find(([key]) => key === name) || [])[1];

// What was done to the labels or images, so that the training loss is not what it seems; empty for nothing.
function lossOf(run) {
  const list = [];
  if (Number(optionOf(run, "optimizer.label_smoothing")) > 0) list.push(`label smoothing ${optionOf(run, "optimizer.label_smoothing")}`);
  if (Number(optionOf(run, "augment.mixup_alpha")) > 0 || Number(optionOf(run, "augment.cutmix_alpha")) > 0) list.push("mixed images");
  return list.join(", ");
}

function tiles(run) {
  const s = run.summary, list = [];
  const tile = (name, value, small) => list.push(el("div", {class: "tile"}, el("dt", {}, name), el("dd", {}, value, small ? el("small", {}, small) : null)));
  const between = s.images_per_second_interval;
  if (isNumber(s.images_per_second))
    tile("images per second", plain(s.images_per_second), between && between.coverage >= 0.949 ? `${plain(between.low)} to ${plain(between.high)} (95%)` : "");
  if (run.step_time) tile("median step", format(run.step_time.median, "s"), isNumber(s.images_per_second_at_median) ? `${plain(s.images_per_second_at_median)} images per second` : `99% within ${format(run.step_time.p99, "s")}`);
  if (s.best_evaluation) tile("best top-1", format(s.best_evaluation.top1, "part"), `step ${plain(s.best_evaluation.step)}, ${plain(s.best_evaluation.samples)} images`);
  if (s.target) tile(`time to top-1 ${format(s.target.top1, "part")}`, s.target.reached && s.target.epoch ? duration(s.target.seconds) : s.target.reached ? `step ${plain(s.target.step)}` : "not reached", s.target.step ? `${format(s.target.best, "part")} after step ${plain(s.target.step)}` : "nothing was evaluated");
  if (isNumber(s.final_loss)) tile("training loss", plain(s.final_loss), "mean of the last steps" + (lossOf(run) ? `, with ${lossOf(run)}` : ""));
  if (isNumber(s.data_wait)) tile("waiting for data", format(s.data_wait, "part"), "of the training time");
  const joules = s.energy || {}, perJoule = joules.images_per_joule ?? (s.images_per_second / s.power_w);
  if (isNumber(s.power_w)) tile("mean power", format(s.power_w, "W"), isNumber(perJoule) ? `${plain(perJoule)} images per joule` : "");
  if (isNumber(joules.joules)) tile("energy", energyText(joules.joules), isNumber(joules.joules_per_step) ? `${plain(joules.joules_per_step)} J a step` : "");
  if (isNumber(s.temperature_c)) tile("highest temperature", format(s.temperature_c, "°C"));
  if (isNumber(s.memory_bytes)) tile("most memory", format(s.memory_bytes, "B"));
  tile("steps", plain(s.steps), s.total_steps ? `of ${plain(s.total_steps)}` : "");
  tile("duration", duration(s.seconds), s.resumes ? `resumed ${s.resumes === 1 ? "once" : s.resumes + " times"}` : "");
  return el("dl", {class: "tiles"}, list);
}

const stateOf = (run) => el("span", {class: "state " + run.state}, live && run.state === "unfinished" ? "running" : run.state);

// Draws the given runs in the charts, and no others.
function drawOnly(indices) {
  chosen.runs = new Set(indices);
  render();
}

// A column only where the runs differ in it, or where it is always wanted.
function runColumns(doc) {
  const differ = (get) => new Set(doc.runs.map(get)).size > 1;
  const fact = (title, get, extra) => differ(get) ? [{title, get, ...extra}] : [];
  const images = (run) => run.info.batch_size * run.info.accumulate * run.ranks;
  const ticked = new Set(drawn(doc).map((run) => run.index));
  const tick = (run) => el("input", {type: "checkbox", "aria-label": `Draw ${run.name}`, checked: ticked.has(run.index) ? "checked" : null, onchange: (event) => {
    if (event.target.checked) ticked.add(run.index); else ticked.delete(run.index);
    drawOnly(ticked);
  }});
  const options = doc.runs.length > 5 ? doc.differences.filter((row) => row.name.includes(".") && !/^(run|data)\./.test(row.name)).slice(0, 6) : [];
  return [
    {title: "run", get: (r) => r.name, text: true, cell: runCell}, {title: "drawn", get: (r) => ticked.has(r.index) ? 1 : 0, cell: tick}, {title: "state", get: (r) => r.state, text: true, cell: stateOf},
    ...fact("model", (r) => r.info.model, {text: true}), ...fact("data", (r) => r.info.data, {text: true}), ...fact("device", (r) => r.info.device, {text: true}), ...fact("type", (r) => r.info.dtype, {text: true}),
    ...fact("batch", images), ...fact("ranks", (r) => r.ranks), {title: "images/s", get: (r) => r.summary.images_per_second},
    {title: "median step", get: (r) => r.step_time ? r.step_time.median : null, unit: "s"},
    {title: "best top-1", get: (r) => r.summary.best_evaluation ? r.summary.best_evaluation.top1 : null, unit: "part"},
    {title: "steps", get: (r) => r.summary.steps}, {title: "duration", get: (r) => r.summary.seconds, unit: "s"},
    ...options.map((row) => ({title: row.name, get: (r) => row.values[r.index], text: true, head: breakable(row.name)}))];
}

function overview(doc) {
  if (!several(doc)) return tiles(doc.runs[0]);
  const count = drawn(doc).length, set = el("div", {class: "controls"});
  let left = doc.runs;
  set.append(el("span", {class: "soft"}, `${count} of ${doc.runs.length} runs are drawn. `),
    el("button", {type: "button", onclick: () => drawOnly(left.map((run) => run.index))}, "draw those that the filter leaves"));
  return el("div", {}, table("runs", "Runs", runColumns(doc), doc.runs, {onfilter: (rows) => { left = rows; }}), doc.runs.length > mostDrawn ? set : null);
}

// Tables are transposed if there are more runs than columns fit on a page.
const mostColumns = 5;

// Verdicts that claim something; others are "same", "undecided" and, for runs that cannot be compared, "unlike".
const verdictMarks = {faster: "better", better: "better", slower: "worse", worse: "worse"};

function comparison(doc) {
  if (!several(doc)) return null;
  const groups = doc.groups || [], first = groups[0], known = doc.comparison.flatMap((row) => row.changes).find((change) => change && change.interval.coverage >= 0.949);
  const coverage = Number((100 * (known ? known.interval.coverage : 0.95)).toPrecision(2));
  const groupHead = (group) => [runHead(doc.runs[group.runs[0]]), repeatsOf(group)];
  const claims = groups.flatMap((group) => doc.comparison.map((row) => ({group, row, change: row.changes[group.runs[0]]}))).filter(({change}) => change && change.beyond_noise);
  const words = claims.slice(0, 12).map(({group, row}) => el("li", {}, groupHead(group), `: ${row.name} ${changeOf(row, group.runs[0]).text}`));
  const unlike = groups.flatMap((group) => (group.unlike || []).map((text) => el("li", {}, `${short(group.name)}: ${text}`)));
  const advice = [...new Set(groups.flatMap((group) => group.advice || []))].map((text) => el("p", {class: "soft"}, whole(text)));
  return section("comparison", "Comparison",
    differencesTable(doc),
    unlike.length ? el("ul", {class: "warnings", "aria-label": "Not comparable"}, unlike) : null,
    el("p", {class: "soft"}, "Changes are against ", groupHead(first), `, with their ${coverage}% intervals. Those in grey claim nothing: no change is within the interval, or a quantity has one value a run, whose noise is not known.`,
      groups.some((group) => group.runs.length > 1) ? " Runs that differ by seed alone are repeats: what is next to each is the change of all of them together." : ""),
    words.length ? el("div", {}, el("p", {}, "Beyond noise:"), el("ul", {}, words), claims.length > words.length ? el("p", {class: "soft"}, `and ${claims.length - words.length} more, in the table`) : null)
      : el("p", {}, "Nothing that can be judged differs beyond noise."),
    advice, doc.runs.length > mostColumns ? changesByRun(doc) : changesByQuantity(doc));
}

const repeatsOf = (group) => group.runs.length > 1 ? ` and ${group.runs.length - 1} repeat${group.runs.length > 2 ? "s" : ""}` : "";
const valueText = (row, index) => format(row.values[index], row.unit === "" && row.name.includes("top-1") ? "part" : row.unit);
function changeCell(doc, row, index, brief) {
  if (doc.groups[0].runs.includes(index)) return valueText(row, index);
  const {text, short, mark} = changeOf(row, index);
  return el("span", brief ? {title: text} : {}, valueText(row, index), el("small", {class: "change " + mark}, brief ? short : text));
}

function changesByQuantity(doc) {
  return table("changes", "What was measured", [{title: "what", key: "name", text: true}, ...doc.runs.map((run, index) => ({
    title: run.label, head: runHead(run), get: (row) => row.values[index], cell: (row) => changeCell(doc, row, index)}))], doc.comparison, {most: 40});
}
// In two tables, each of which fits a screen: what the device drew apart from the rest.
function changesByRun(doc) {
  const ofDevice = (row) => ["W", "J", "1/J", "MHz", "°C", "B"].includes(row.unit);
  const part = (id, caption, quantities) => quantities.length ? table(id, caption, [{title: "run", get: (run) => run.name, text: true, cell: runCell}, ...quantities.map((row) => ({
    title: row.name, get: (run) => row.values[run.index], cell: (run) => changeCell(doc, row, run.index, true)}))], doc.runs) : null;
  return [part("changes", "What was measured", doc.comparison.filter((row) => !ofDevice(row))), part("changes-device", "Energy and device", doc.comparison.filter(ofDevice))];
}

function differencesTable(doc) {
  const caption = "Settings that differ";
  if (doc.runs.length > mostColumns)
    return table("differences", caption, [{title: "run", get: (run) => run.name, text: true, cell: runCell}, ...doc.differences.slice(0, 12).map((row) => ({
      title: row.name, head: breakable(row.name), get: (run) => row.values[run.index], text: true, cell: (run) => breakable(row.values[run.index])}))], doc.differences.length ? doc.runs : []);
  return table("differences", caption, [{title: "option or fact", key: "name", text: true, cell: (row) => breakable(row.name)},
    ...doc.runs.map((run, index) => ({title: run.label, head: runHead(run), get: (row) => row.values[index], text: true, cell: (row) => breakable(row.values[index])}))], doc.differences);
}

// A change in words: relative, or in points for a quantity that is compared by its difference. `short` leaves out the interval.
function changeOf(row, index) {
  const before = row.values[0], now = row.values[index], change = row.changes[index], points = row.measure === "difference";
  if (!isNumber(before) || !isNumber(now) || (before === 0 && !points)) return {text: "", short: "", mark: ""};
  const say = points ? (value) => percent(value).replace("%", "points") : percent;
  const unsure = (value, why) => ({text: `${say(value)} (${why})`, short: say(value), mark: "soft"});
  if (row.unlike.includes(index)) {
    const text = (change ? say(change.change) + ", " : "") + "not comparable";
    return {text, short: text, mark: "soft"};
  }
  if (!change) return unsure(points ? now - before : now / before - 1, "one value");
  if (change.interval.coverage < 0.949)
    return unsure(change.change, points ? "one run per side" : {repeats: "too few or too uneven runs", "two runs": "too few or too uneven steps"}[change.evidence] || "too few steps");
  const good = row.better === "neither" ? null : (change.change > 0) === (row.better === "higher");
  const verdict = change.verdict ?? (change.beyond_noise && good !== null ? (good ? "better" : "worse") : "");
  const few = change.evidence === "two runs" && verdictMarks[verdict] ? " in these two runs" : "";
  const word = verdict ? ", " + verdict : "";
  return {text: `${say(change.change)} (${say(change.interval.low)} to ${say(change.interval.high)})${word}${few}`, short: say(change.change) + word,
    mark: change.beyond_noise ? verdictMarks[verdict] || "" : "soft"};
}
