// Where the time of a step goes, as `redline profile` measured it.

const list = (value) => Array.isArray(value) ? value.filter((part) => part && typeof part === "object") : [];
const total = (profile) => profile.steps > 0 && isNumber(profile.elapsed_seconds) ? profile.elapsed_seconds / profile.steps : null;

function partTable(id, caption, parts, step) {
  const share = (part) => isNumber(step) && step > 0 ? part.seconds / step : null;
  const known = parts.some((part) => isNumber(part.least_seconds));
  return table(id, caption, [
    {title: "name", key: "name", text: true, cell: (part) => breakable(part.name)}, {title: "a step", key: "count"}, {title: "time", key: "seconds", unit: "s"},
    {title: "of the step", get: share, cell: (part) => {
      const meter = el("span", {class: "meter", "aria-hidden": "true"});
      meter.style.width = `${Math.min(100, 100 * (share(part) || 0))}%`;
      return el("span", {}, format(share(part), "part"), meter);
    }},
    ...(known ? [
      {title: "FLOP/s", get: (part) => part.flops > 0 ? part.flops / part.seconds : null, unit: "FLOP/s"},
      {title: "bytes/s", get: (part) => part.bytes > 0 ? part.bytes / part.seconds : null, unit: "B/s"},
      {title: "of the ceiling", get: (part) => isNumber(part.least_seconds) ? part.least_seconds / part.seconds : null, unit: "part"},
      {title: "bound by", get: (part) => part.bound || "", text: true}] : []),
  ], parts);
}

// One point per op: colour is its kind, area its time, shape its run. The largest are named.
const shapes = ["circle", "triangle", "rectRot", "rect", "star"];
const mostNames = 10;

function roofline(doc) {
  const runs = drawn(doc).filter((run) => run.profile), ops = [];
  runs.forEach((run, at) => {
    for (const op of list(run.profile.ops).filter((op) => op.flops > 0 && op.bytes > 0 && op.seconds > 0))
      ops.push({x: op.flops / op.bytes, y: op.flops / op.seconds, seconds: op.seconds, kind: String(op.kind || "other"), shape: shapes[at % shapes.length], op: short(String(op.name)), run});
  });
  if (!ops.length) return null;
  const time = (some) => some.reduce((sum, op) => sum + op.seconds, 0), longest = Math.max(...ops.map((op) => op.seconds));
  let named = 0;
  ops.sort((a, b) => b.seconds - a.seconds);
  ops.forEach((op, at) => {
    op.size = 3 + 11 * Math.sqrt(op.seconds / longest);
    op.name = `${op.op}${several(doc) ? ", " + op.run.label : ""}, ${format(op.seconds, "s")} a step`;
    if (ops.findIndex((other) => other.op === op.op) === at && named++ < mostNames) op.tag = op.op.slice(0, 32);
  });
  const ofKind = (kind) => ops.filter((op) => op.kind === kind);
  const kinds = [...new Set(ops.map((op) => op.kind))].sort((a, b) => time(ofKind(b)) - time(ofKind(a)));
  const sets = kinds.flatMap((kind, index) => [...new Set(ofKind(kind).map((op) => op.shape))].map((shape, at) => ({
    unnamed: at > 0, label: kind.slice(0, 40), index: index % (palette.light.length - 3), only: true, dots: 4, shape, points: ofKind(kind).filter((op) => op.shape === shape).sort((a, b) => a.x - b.x)})));
  const ceilings = (runs.find((run) => run.profile.ceilings) || {profile: {ceilings: {}}}).profile.ceilings;
  if (ceilings.flops_per_second > 0 && ceilings.bytes_per_second > 0) {
    const places = ops.map((op) => op.x), ridge = ceilings.flops_per_second / ceilings.bytes_per_second;
    const from = 10 ** Math.floor(Math.log10(Math.min(...places, ridge / 2))), to = 10 ** Math.ceil(Math.log10(Math.max(...places, ridge * 2)));
    sets.push({label: "what this machine can do", index: 5, shape: "line", points: [from, ridge, to].map((x) => ({x, y: Math.min(ceilings.flops_per_second, x * ceilings.bytes_per_second)}))});
  }
  const words = ["an op each; the larger, the more time it takes", ...(runs.length > 1 ? runs.map((run, at) => `${run.label}: ${shapeNames[at % shapes.length]}`) : [])];
  return chart("roofline", {title: "Roofline", note: words.join("; "), x: "FLOP per byte", unit: "FLOP/s", xLog: true, yLog: true, scatter: true, wide: true, tall: true, sets});
}
const shapeNames = ["circles", "triangles", "diamonds", "squares", "stars"];

function gaps(profile, step) {
  const gap = profile.gap_seconds && typeof profile.gap_seconds === "object" ? Object.entries(profile.gap_seconds).filter(([, seconds]) => seconds > 0) : [];
  const words = {input: "waiting for data", launch: "between two kernels, or two ops on a CPU", communication: "waiting for other ranks", host: "the host was busy"};
  return gap.map(([cause, seconds]) => ({cause: words[cause] || cause, seconds: seconds / (profile.steps || 1), share: step ? seconds / (profile.steps || 1) / step : null}));
}

function profileOf(doc, run, index) {
  const profile = run.profile, step = total(profile), id = (name) => `profile-${index}-${name}`, facts = [];
  const fact = (name, value, small) => facts.push(el("div", {class: "tile"}, el("dt", {}, name), el("dd", {}, value, small ? el("small", {}, small) : null)));
  if (isNumber(profile.utilisation)) fact("device busy", format(profile.utilisation, "part"), "of the traced time");
  if (isNumber(step)) fact("step while traced", format(step, "s"), `${plain(profile.steps)} steps from step ${plain(profile.first_step || 0)}`);
  if (profile.tracing && profile.tracing.untraced_step_seconds > 0) {
    const between = profile.tracing.interval;
    const told = profile.tracing.measurable !== false;  // unsaid by older versions
    fact("tracing costs", told ? percent(profile.tracing.overhead) : "not measurable", (told ? "of the step" : "") + (between ? ` (95%: ${percent(between.low)} to ${percent(between.high)})` : ""));
  }
  if (profile.communication_seconds > 0 && profile.elapsed_seconds > 0)
    fact("exchanging gradients", format(profile.communication_seconds / profile.elapsed_seconds, "part"), `of the time; ${format(profile.communication_exposed_seconds / profile.elapsed_seconds, "part")} not overlapped with computation`);
  if (isNumber(profile.named_share)) fact("time with a name", format(profile.named_share, "part"), "belongs to an op of the plan");
  const losses = list(profile.losses).map((loss) => el("li", {}, el("strong", {}, `${format(loss.seconds, "s")} a step: `), String(loss.what),
    loss.try ? el("div", {class: "soft"}, whole("Try " + String(loss.try))) : null));
  const trace = profile.trace || {}, left = [];
  if (profile.steps_left_out > 0) left.push(`${plain(profile.steps_left_out)} more steps were asked for: the bound on records was reached.`);
  if (trace.steps_left_out > 0) left.push(`The trace has the first ${plain(trace.steps)} of them, to stay small enough for viewers.`);
  if (profile.records_lost > 0) left.push(`The device lost ${plain(profile.records_lost)} records.`);
  return [
    several(doc) ? el("h3", {}, swatch(index), breakable(run.name)) : null,
    facts.length ? el("dl", {class: "tiles"}, facts) : null,
    left.length ? el("p", {class: "soft"}, left.join(" ")) : null,
    losses.length ? el("div", {}, el("h3", {}, "The largest losses"), el("ol", {class: "losses"}, losses)) : null,
    table(id("gaps"), "When the device stood still", [{title: "why", key: "cause", text: true}, {title: "a step", key: "seconds", unit: "s"}, {title: "of the step", key: "share", unit: "part"}], gaps(profile, step)),
    partTable(id("kinds"), "Time by kind of op", list(profile.kinds), step),
    fold("Time by layer", partTable(id("layers"), "Layers", list(profile.layers), step)),
    fold("Time by op", partTable(id("ops"), "Ops", list(profile.ops), step)),
    fold("Time by kernel", partTable(id("kernels"), "Kernels", list(profile.kernels), step)),
    coreUse(id("cores"), "Use of the cores, weighted by cycles", profile.counters,
      {tensor_active_pct: "tensor cores, cycles in which they compute", tensor_pct: "tensor cores, instructions", fma_pct: "FMA, instructions", fp16_pct: "FP16, instructions", sfu_pct: "special functions, instructions"}),
    coreUse(id("averages"), "Use of the device, mean over the traced steps", profile.device_averages,
      {sm_pct: "multiprocessors, with work", tensor_pct: "tensor cores", fp32_pct: "FP32", fp16_pct: "FP16", dram_pct: "memory"}),
    table(id("threads"), "Share of its time that each thread computes", [{title: "thread", key: "thread"}, {title: "computes", key: "share", unit: "part"}],
      (Array.isArray(profile.threads_computing) ? profile.threads_computing : []).map((share, thread) => ({thread, share}))),
  ];
}

const fold = (title, content) => content ? el("details", {}, el("summary", {}, title), content) : null;

// Percent of the peak of each kind of unit.
function coreUse(id, caption, counters, units) {
  if (!counters || typeof counters !== "object") return null;
  const rows = Object.entries(units).filter(([key]) => isNumber(counters[key])).map(([key, unit]) => ({unit, value: counters[key] / 100}));
  return table(id, caption, [{title: "unit", key: "unit", text: true}, {title: "of its peak", key: "value", unit: "part"}], rows);
}

function profileSection(doc) {
  if (!doc.runs.some((run) => run.profile)) return null;
  return section("time", "Where the time goes", charts(roofline(doc)), drawn(doc).flatMap((run) => run.profile ? profileOf(doc, run, run.index) : []));
}
