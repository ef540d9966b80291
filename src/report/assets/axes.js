// Settings for all charts of steps: the x axis, smoothing, and which runs are drawn.

const chosen = {axis: "step", smoothing: "light", runs: null /* indices; null: the first few */};
const mostDrawn = 10;  // runs at first: more lines than that cannot be told apart

const axes = {step: {x: "step"}, epoch: {x: "epoch"}, time: {x: "time", xUnit: "s"}};
const windows = {none: 0, light: 0.01, medium: 0.03, strong: 0.1};  // fraction of the run that each point averages

const drawn = (doc) => doc.runs.filter((run) => chosen.runs ? chosen.runs.has(run.index) : run.index < mostDrawn);

// Interpolated value at x of points with ascending x.
function between(series, x) {
  const {x: places, y: values} = series;
  let low = 0, high = places.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (places[middle] <= x) low = middle; else high = middle;
  }
  if (high <= low || places[high] === places[low]) return values[low];
  return values[low] + (values[high] - values[low]) * (x - places[low]) / (places[high] - places[low]);
}

// Axes that every run has.
function axesOf(doc) {
  const has = {step: () => true, epoch: (run) => run.info.steps_per_epoch > 0, time: (run) => run.series.elapsed && run.series.elapsed.y.every(isNumber)};
  return Object.keys(axes).filter((name) => doc.runs.every(has[name]));
}

const axis = (doc) => ({...axes[axesOf(doc).includes(chosen.axis) ? chosen.axis : "step"], link: "step"});

// The position of a run's step on the chosen axis.
function place(doc, run) {
  const name = axis(doc).x;
  if (name === "epoch") return (step) => step / run.info.steps_per_epoch;
  if (name === "time") return (step) => between(run.series.elapsed, step);
  return (step) => step;
}

// Each point the mean of those around it; fewer at the ends.
function smooth(list, count) {
  const half = Math.floor(count / 2), sums = [0], counts = [0];
  for (const p of list) {
    sums.push(sums[sums.length - 1] + (isNumber(p.y) ? p.y : 0));
    counts.push(counts[counts.length - 1] + (isNumber(p.y) ? 1 : 0));
  }
  return list.map((p, i) => {
    const reach = Math.min(half, i, list.length - 1 - i), from = i - reach, to = i + reach + 1, known = counts[to] - counts[from];
    return {x: p.x, y: known ? (sums[to] - sums[from]) / known : null};
  });
}

// One line per run; a smoothed line has its raw values faintly behind it.
// options: {label: before the run's name, smooth: whether it may be smoothed}
function stepSets(doc, name, options) {
  const sets = [], {label = "", smooth: may = false} = options || {};
  for (const run of drawn(doc)) {
    const raw = run.series[name];
    if (!raw) continue;
    const at = place(doc, run), move = (series) => points(series).map((p) => ({x: at(p.x), y: p.y}));
    const means = run.series[name + "_smooth"] || raw, count = Math.round(windows[chosen.smoothing] * means.x.length);
    const smoothed = may && windows[chosen.smoothing] > 0 && (means !== raw || count > 2);
    const text = [typeof label === "function" ? label(run) : label, several(doc) ? run.label : ""].filter(Boolean).join(", ") || name;
    sets.push({label: smoothed ? text + " (each step)" : text, points: move(raw), index: run.index, faint: smoothed});
    if (smoothed) sets.push({label: text, points: smooth(move(means), count), index: run.index, mean: true});
  }
  return sets;
}

// The controls; changing one redraws the charts.
function controls(doc) {
  const choice = (name, title, list, change) => el("label", {}, title + " ", el("select", {name, onchange: (event) => {
    chosen[name] = event.target.value;
    if (change) change();
    render();
    document.querySelector(`select[name=${name}]`).focus();
  }}, list.map(([value, text]) => el("option", {value, selected: chosen[name] === value ? "selected" : null}, text))));
  const everything = () => { for (const card of cards.values()) if (card.spec && card.spec.link === "step") card.range = null; };
  const percentOf = (name) => windows[name] ? `${name} (mean over ${100 * windows[name]}% of the run)` : "none";
  return el("div", {class: "controls"},
    choice("axis", "Charts over", axesOf(doc).map((name) => [name, name]), everything),
    choice("smoothing", "Smoothing", Object.keys(windows).map((name) => [name, percentOf(name)])));
}
