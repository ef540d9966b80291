// A chart with its caption, its buttons and its data as a table: zoomed by dragging, by buttons or by keys.

// A palette for the colour-blind (Okabe and Ito), in a light and a dark version.
const palette = {
  light: ["#0072b2", "#d55e00", "#009e73", "#b04a86", "#8a6d00", "#4a4a4a", "#3f8fc4", "#7a3b00"],
  dark: ["#56b4e9", "#f0894a", "#33c79b", "#dd8fbe", "#f0e442", "#c8c8c8", "#8fc7ee", "#d8a37a"],
};
let printing = false;
function isDark() {
  if (printing) return false;
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
const colour = (index) => palette[isDark() ? "dark" : "light"][index % 8];
const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const spoken = el("p", {class: "unseen", role: "status"});  // announces changes to screen readers
const cards = new Map();    // by id; kept with their zoom when the page is redrawn
const mostNamed = 8;        // lines that a legend has room for
const waiting = new Set();  // cards that are not in the page yet

// A gap where there is no value: Chart.js wants null.
const points = (series) => series ? series.x.map((x, i) => ({x, y: series.y[i]})) : [];

// A line through one value cannot be seen: a value between two gaps gets a dot.
const lone = ({dataIndex: i, dataset: {data}}) => {
  const drawn = (p) => Boolean(p) && isNumber(p.y);
  return drawn(data[i]) && !drawn(data[i - 1]) && !drawn(data[i + 1]) ? 2.5 : 0;
};

class Card {
  constructor(id) {
    this.id = id;
    this.canvas = el("canvas", {tabindex: "0", role: "img"});
    this.caption = el("figcaption", {id: `chart-${id}-title`});
    this.named = [];  // controls, whose labels include the chart's name: a page has many of them
    const control = (node, label) => { this.named.push({node, label}); return node; };
    const button = (text, label, action) => control(el("button", {type: "button", title: label, onclick: action}, text), label);
    this.log = button("log", "log: logarithmic scale", () => this.toggleLog());
    this.log.setAttribute("aria-pressed", "false");
    this.all = button("all", "all: a scale that has every point in it", () => this.toggleAll());
    this.all.setAttribute("aria-pressed", "false");
    this.data = el("details", {ontoggle: () => this.fillTable()}, control(el("summary", {}, "Data as a table"), "Data as a table"));
    this.bar = el("div", {class: "bar"}, this.caption, this.all, this.log, button("+", "Zoom in", () => this.zoomBy(0.5)),
      button("−", "Zoom out", () => this.zoomBy(2)), button("reset", "reset: show everything", () => this.zoom(null)),
      button("PNG", "Save as a picture, PNG", () => this.savePicture()), button("CSV", "Save the numbers, CSV", () => this.saveNumbers()));
    this.figure = el("figure", {id: "chart-" + id, "aria-labelledby": this.caption.id}, this.bar, el("div", {class: "frame"}, this.canvas), this.data);
    this.range = null;
    this.logarithmic = false;
    this.whole = false;
    this.listen();
  }

  // spec: {title, note, x, xUnit, unit, sets: [{label, points: [{x, y, name, tag: written beside it, size}], index, faint, dots, shape, stepped, dashed}],
  //        marks: [{x, to, text}], link: charts of the same name zoom together, log: may be switched, wide, stacked,
  //        boxes: [{label, low, q1, median, q3, high}], ranges: [{x, low, high}], robust: few far values do not set the scale}
  draw(spec) {
    this.spec = spec;
    this.limits = spec.robust ? limitsOf(spec) : null;
    const beyond = this.limits && !this.whole ? `${plain(this.limits.beyond)} beyond the scale, at its edge; “all” shows them` : "";
    const many = this.lines() > mostNamed ? `${this.lines()} lines: the pointer and the table name them` : "";
    this.caption.replaceChildren(spec.title + " ", el("small", {}, [spec.note, many, beyond].filter(Boolean).join("; ")));
    this.figure.classList.toggle("wide", Boolean(spec.wide));
    this.figure.classList.toggle("tall", Boolean(spec.tall));
    this.log.hidden = !spec.log;
    this.all.hidden = !this.limits;
    this.bounds = this.extent();
    const what = spec.sets.map((set) => `${set.label}: ${this.describe(set)}`).join("; ");
    for (const {node, label} of this.named) node.setAttribute("aria-label", `${label}: ${spec.title}`);
    this.canvas.setAttribute("aria-label", `${spec.title}${spec.note ? ", " + spec.note : ""}. ${what}. Arrow keys move, plus and minus zoom, 0 shows everything.`);
    waiting.add(this);
    if (this.figure.isConnected) this.paint();
    return this.figure;
  }

  // A chart takes its size from its element, so it is drawn once that is in the page.
  paint() {
    waiting.delete(this);
    const config = this.config();
    if (this.chart) {
      this.chart.data = config.data;
      const resized = this.chart.options.devicePixelRatio !== config.options.devicePixelRatio;
      this.chart.options = config.options;
      this.chart.update("none");
      // Paper is narrower than the screen that the page still has while it is being made ready.
      if (resized && printing) this.chart.resize(this.spec.wide ? 720 : 350, this.spec.wide ? 250 : 180);
      else if (resized) this.chart.resize();
    } else {
      this.chart = new Chart(this.canvas, config);
    }
    if (!printing) this.makeRoom();
    if (this.data.open) this.fillTable();
  }

  // A long legend makes the chart higher, not its lines lower.
  makeRoom() {
    const frame = this.canvas.parentNode, more = Math.max(0, this.chart.legend.height - 30);
    frame.style.height = "";
    if (more > 0) frame.style.height = `${frame.clientHeight + more}px`;
    this.chart.resize();
  }

  describe(set) {
    const values = set.points.map((p) => p.y).filter(isNumber);
    if (!values.length) return "no values";
    let low = Infinity, high = -Infinity;
    for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
    return `${values.length} values from ${format(low, this.spec.unit)} to ${format(high, this.spec.unit)}, last ${format(values[values.length - 1], this.spec.unit)}`;
  }

  extent() {
    let low = Infinity, high = -Infinity;
    for (const set of this.spec.sets) {
      for (const p of set.points) { low = Math.min(low, p.x); high = Math.max(high, p.x); }
    }
    if (this.spec.boxes) { low = -0.6; high = this.spec.boxes.length - 0.4; }
    if (!(low < high)) return {min: low - 0.5, max: low + 0.5};
    const room = this.spec.scatter && !this.spec.xLog ? 0.03 * (high - low) : 0;  // for points at the ends
    return {min: low - room, max: high + room};
  }

  // The value of lines that hardly change: a scale of its own size would have labels that are all alike.
  flat() {
    let low = Infinity, high = -Infinity;
    for (const set of this.spec.sets) for (const p of set.points) if (isNumber(p.y)) { low = Math.min(low, p.y); high = Math.max(high, p.y); }
    return !this.spec.zero && high - low < 1e-3 * Math.abs(high) ? high : 0;
  }

  config() {
    const spec = this.spec, flat = this.flat(), ink = variable("--soft"), line = variable("--line"), shown = this.range || this.bounds;
    const datasets = spec.sets.map((set, index) => {
      const tint = set.tint ? set.tint() : colour(set.index);
      return {
        label: set.label, data: set.points, borderColor: set.faint ? tint + "30" : tint, backgroundColor: spec.stacked ? tint + "cc" : set.fill ? tint + "66" : set.only ? tint + (set.solid ? "" : "99") : tint,
        borderWidth: set.only ? 0.8 : set.faint ? 1 : 1.8, pointRadius: set.points.some((p) => p.size) ? set.points.map((p) => p.size) : set.dots ? (set.dots === true ? 3.5 : set.dots) : lone,
        pointStyle: set.shape || "circle", pointHoverRadius: set.points.some((p) => p.size) ? set.points.map((p) => p.size + 1) : 4, showLine: !set.only,
        stepped: set.stepped || false, borderDash: set.dashed || set.index >= palette.light.length ? [5, 4] : [], fill: spec.stacked ? (index ? "-1" : "origin") : set.fill ? "origin" : false, spanGaps: false,
        order: spec.stacked ? index : set.faint ? 2 : 1,
      };
    });
    const unit = (value) => format(value, spec.unit, true);
    return {
      type: "line", data: {datasets}, plugins: [marks, selection, ranges, boxes, beyond, tags],
      options: {
        parsing: false, normalized: true, animation: false, responsive: true, maintainAspectRatio: false, card: this, devicePixelRatio: printing ? 2 : undefined,
        interaction: {mode: spec.boxes || spec.scatter ? "nearest" : "column", axis: "xy", intersect: false},
        scales: {
          x: {type: spec.xLog ? "logarithmic" : "linear", min: shown.min, max: shown.max, grid: {color: line, drawTicks: false},
            title: {display: true, text: spec.x, color: ink},
            ticks: {color: ink, includeBounds: !spec.scatter && !spec.boxes, maxRotation: spec.boxes ? 60 : 0, autoSkipPadding: 16, stepSize: spec.boxes ? 1 : undefined, autoSkip: ({chart}) => !spec.boxes || 14 * spec.boxes.length > chart.width,
              callback: (value) => spec.xLog && !/^[13]/.test(value.toExponential()) ? "" : spec.boxes ? (Number.isInteger(value) && spec.boxes[value] ? spec.boxes[value].label.slice(0, 24) : "") : format(value, spec.xUnit)}},
          y: {type: this.logarithmic || spec.yLog ? "logarithmic" : "linear", grid: {color: line, drawTicks: false}, beginAtZero: Boolean(spec.zero), stacked: Boolean(spec.stacked),
            ...(this.limits && !this.whole ? {min: this.limits.min, max: this.limits.max}
              : spec.boxes ? {suggestedMin: Math.min(...spec.boxes.map((box) => box.low)), suggestedMax: Math.max(...spec.boxes.map((box) => box.high))}
              : flat ? {suggestedMin: flat - 0.005 * Math.abs(flat), suggestedMax: flat + 0.005 * Math.abs(flat)} : {}),
            ticks: {color: ink, callback: unit, maxTicksLimit: 8, includeBounds: false, stepSize: spec.unit === "B" ? this.byteStep() : undefined}, title: {display: false}},
        },
        plugins: {
          legend: {display: this.lines() > 1 && this.lines() <= mostNamed, labels: {color: variable("--ink"), boxWidth: spec.scatter || spec.boxes ? 8 : 18, boxHeight: spec.scatter || spec.boxes ? 8 : spec.stacked ? 10 : 2,
            filter: (item) => !spec.sets[item.datasetIndex].faint && !spec.sets[item.datasetIndex].unnamed, usePointStyle: Boolean(spec.scatter || spec.boxes),
            generateLabels: (chart) => Chart.defaults.plugins.legend.labels.generateLabels(chart).map((label) => ({...label, text: label.text.slice(0, 48)}))}},
          tooltip: {animation: false, filter: (item, index) => index < 2 * mostNamed, callbacks: {
            title: (items) => items.length ? (spec.boxes ? (items[0].raw.name || "") : `${spec.x} ${format(items[0].parsed.x, spec.xUnit)}`).slice(0, 80) : "",
            label: (item) => `${item.raw.name && !spec.boxes ? item.raw.name : item.dataset.label}`.slice(0, 60) + `: ${unit(item.parsed.y)}`}},
        },
      },
    };
  }

  lines() { return this.spec.sets.filter((set) => !set.faint && !set.unnamed).length; }

  // Bytes have grid lines at powers of two.
  byteStep() {
    let high = 0;
    for (const set of this.spec.sets) for (const p of set.points) if (p.y > high) high = p.y;
    return high > 0 ? 2 ** Math.ceil(Math.log2(high / 7)) : undefined;
  }

  // null shows everything.
  zoom(range, told) {
    if (range) {
      const width = this.bounds.max - this.bounds.min;
      const size = Math.min(width, Math.max(range.max - range.min, width / 1e5));
      const min = Math.min(Math.max(range.min, this.bounds.min), this.bounds.max - size);
      range = size >= width ? null : {min, max: min + size};
    }
    this.range = range;
    const shown = range || this.bounds;
    Object.assign(this.chart.options.scales.x, shown);
    this.chart.update("none");
    this.figure.dataset.zoomed = String(Boolean(range));
    if (told) return;
    spoken.textContent = `${this.spec.title}: ${range ? `${this.spec.x} ${format(shown.min, this.spec.xUnit)} to ${format(shown.max, this.spec.xUnit)}` : "everything"}`;
    if (!this.spec.link) return;
    for (const other of cards.values())
      if (other !== this && other.chart && other.figure.isConnected && other.spec.link === this.spec.link) other.zoom(range, true);
  }

  zoomBy(factor) {
    const {min, max} = this.range || this.bounds, middle = (min + max) / 2, half = (max - min) / 2 * factor;
    this.zoom({min: middle - half, max: middle + half});
  }

  toggleAll() {
    this.whole = !this.whole;
    this.all.setAttribute("aria-pressed", String(this.whole));
    this.draw(this.spec);
  }

  toggleLog() {
    this.logarithmic = !this.logarithmic;
    this.log.setAttribute("aria-pressed", String(this.logarithmic));
    this.draw(this.spec);
  }

  listen() {
    const at = (event) => this.chart.scales.x.getValueForPixel(event.clientX - this.canvas.getBoundingClientRect().left);
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      this.drag = {from: at(event), to: at(event)};
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!this.drag) return;
      this.drag.to = at(event);
      this.chart.draw();
    });
    const drop = () => {
      if (!this.drag) return;
      const {from, to} = this.drag, shown = this.range || this.bounds;
      this.drag = null;
      if (Math.abs(to - from) > (shown.max - shown.min) / 100) this.zoom({min: Math.min(from, to), max: Math.max(from, to)});
      else this.chart.draw();
    };
    this.canvas.addEventListener("pointerup", drop);
    this.canvas.addEventListener("pointercancel", drop);
    this.canvas.addEventListener("dblclick", () => this.zoom(null));
    this.canvas.addEventListener("keydown", (event) => {
      const {min, max} = this.range || this.bounds, step = (max - min) / 5;
      const act = {ArrowLeft: () => this.zoom({min: min - step, max: max - step}), ArrowRight: () => this.zoom({min: min + step, max: max + step}),
        "+": () => this.zoomBy(0.5), "=": () => this.zoomBy(0.5), "-": () => this.zoomBy(2), "0": () => this.zoom(null), Escape: () => this.zoom(null)}[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    });
  }

  savePicture() {
    const copy = el("canvas", {width: this.canvas.width, height: this.canvas.height}), context = copy.getContext("2d");
    context.fillStyle = variable("--card");
    context.fillRect(0, 0, copy.width, copy.height);
    context.drawImage(this.canvas, 0, 0);
    save(this.id + ".png", copy.toDataURL("image/png"));
  }

  rows() {
    const rows = [["series", this.spec.x, this.spec.title]];
    for (const set of this.spec.sets) for (const p of set.points) rows.push([set.label, p.name ?? p.x, p.y]);
    return rows;
  }
  saveNumbers() { saveCsv(this.id + ".csv", this.rows()); }

  fillTable() {
    const old = this.data.querySelector(".table");
    if (old) old.remove();
    if (!this.data.open) return;
    const all = this.rows().slice(1), stride = Math.ceil(all.length / 200);
    const part = all.filter((row, index) => index % stride === 0);
    this.data.append(table("data-" + this.id, stride > 1 ? `One in ${stride} of the points drawn` : "The points drawn",
      [{title: "series", get: (r) => r[0], text: true}, {title: this.spec.x, get: (r) => r[1], text: Boolean(this.spec.boxes), unit: this.spec.xUnit},
       {title: this.spec.title, get: (r) => r[2], unit: this.spec.unit}], part, {fixed: true, most: 200}) || "");
  }
}

// The point of each series nearest to the pointer: their x values may differ.
Chart.Interaction.modes.column = (chart, event) => {
  const want = chart.scales.x.getValueForPixel(Chart.helpers.getRelativePosition(event, chart).x), found = [];
  for (const meta of chart.getSortedVisibleDatasetMetas()) {
    const data = chart.data.datasets[meta.index].data;
    let low = 0, high = data.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (data[middle].x < want) low = middle; else high = middle;
    }
    const index = data.length && Math.abs(data[low].x - want) < Math.abs(data[high].x - want) ? low : high;
    if (data[index] && isNumber(data[index].y)) found.push({element: meta.data[index], datasetIndex: meta.index, index});
  }
  return found;
};

function chart(id, spec) {
  spec.sets = spec.sets.filter((set) => set.points.some((p) => isNumber(p.y)));
  if (!spec.sets.length) return null;
  if (!cards.has(id)) cards.set(id, new Card(id));
  return cards.get(id).draw(spec);
}

function paintCharts() {
  for (const card of [...waiting]) if (card.figure.isConnected) card.paint();
}

function redrawCharts() {
  for (const card of cards.values()) if (card.chart && card.figure.isConnected) card.draw(card.spec);
}
