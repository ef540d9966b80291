// The devices during a run: clocks, power, temperature, memory.

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

const throttleWords = {sw_power_cap: "power limit", hw_slowdown: "hardware slowdown", sync_boost: "other GPUs' clocks", sw_thermal: "heat", hw_thermal: "heat (hardware)",
  power_brake: "power brake", app_clocks: "set clocks", display_clocks: "display clocks"};

function throttleMarks(telemetry) {
  const list = [];
  telemetry.throttle.forEach((mark, index) => {
    // An idle device, or one at clocks set by the user, is not throttled.
    if (mark.text.split("|").every((word) => ["none", "idle", "app_clocks", "display_clocks"].includes(word))) return;
    const next = telemetry.throttle[index + 1];
    list.push({x: mark.seconds, to: next ? next.seconds : telemetry.last, text: mark.text.split("|").map((word) => throttleWords[word] || word).join(", ")});
  });
  return list;
}

const nameOfSource = (telemetry) => telemetry.rank === "" || telemetry.rank === undefined ? telemetry.source : `rank ${telemetry.rank}`;

function device(doc) {
  const sources = [];
  for (const run of drawn(doc)) for (const telemetry of run.telemetry) sources.push({run, index: run.index, telemetry});
  if (!sources.length) return null;
  const ranked = sources.some((source) => source.run.telemetry.length > 1);
  const throttled = sources.flatMap((source) => throttleMarks(source.telemetry).map((mark) => ({run: source.run.name, source: nameOfSource(source.telemetry), ...mark})));
  const list = sensors.map((sensor) => {
    const sets = [];
    for (const {run, index, telemetry} of sources) {
      const prefix = (several(doc) ? run.label + ", " : "") + (run.telemetry.length > 1 ? nameOfSource(telemetry) + ", " : "");
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

// With several processes, one row each: where it runs, and its medians.
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
