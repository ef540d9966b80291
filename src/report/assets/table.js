// Elements, numbers and tables. Whatever a run says becomes text, never markup.
"use strict";

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// Three or four digits, as many as are read at a glance.
function plain(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(4)));
}

function duration(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 1e-3) return plain(seconds * 1e6) + " µs";
  if (seconds < 1) return plain(seconds * 1e3) + " ms";
  if (seconds < 120) return plain(seconds) + " s";
  const whole = Math.round(seconds), two = (n) => String(n).padStart(2, "0");
  const minutes = Math.floor(whole / 60) % 60, hours = Math.floor(whole / 3600);
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)} h` : `${minutes}:${two(whole % 60)} min`;
}

function scaled(value, units, base) {
  let at = 0;
  while (Math.abs(value) >= base && at < units.length - 1) { value /= base; ++at; }
  return plain(value) + " " + units[at];
}

// A value with its unit, as a person reads it.
function format(value, unit) {
  if (!isNumber(value)) return "–";
  switch (unit) {
    case "s": return duration(value);
    case "ms": return duration(value / 1e3);
    case "part": return Number((100 * value).toPrecision(Math.abs(value) >= 0.1 ? 4 : 3)) + " %";
    case "B": return scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
    case "B/s": return scaled(value, ["B/s", "KB/s", "MB/s", "GB/s", "TB/s"], 1000);
    case "FLOP": return scaled(value, ["FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"], 1000);
    case "FLOP/s": return scaled(value, ["FLOP/s", "KFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"], 1000);
    case "": case undefined: case null: return plain(value);
    default: return plain(value) + " " + unit;
  }
}

const percent = (change) => (change > 0 ? "+" : change < 0 ? "−" : "±") + Number(Math.abs(100 * change).toPrecision(3)) + " %";

const sorted = new Map();  // of a table's id: the column and direction it is sorted by

// columns: [{title, unit, key or get(row), text: true for words, cell(row): an element}]
function table(id, caption, columns, rows, options) {
  if (!rows.length) return null;
  const body = el("tbody");
  const valueOf = (column, row) => column.get ? column.get(row) : row[column.key];
  const heads = columns.map((column, index) => {
    const button = el("button", {type: "button", onclick: () => {
      const now = sorted.get(id);
      sorted.set(id, {index, down: now && now.index === index ? !now.down : !column.text});
      draw();
    }}, column.title);
    return el("th", {scope: "col", class: column.text ? "" : "number"}, options && options.fixed ? column.title : button);
  });
  function draw() {
    const order = sorted.get(id);
    let list = rows;
    if (order && columns[order.index]) {
      const column = columns[order.index];
      list = rows.map((row, place) => ({row, place, value: valueOf(column, row)}));
      list.sort((a, b) => {
        const none = (isNumber(a.value) || column.text ? 0 : 1) - (isNumber(b.value) || column.text ? 0 : 1);
        if (none) return none;  // what is not known comes last either way
        const by = column.text ? String(a.value).localeCompare(String(b.value), "en", {numeric: true}) : a.value - b.value;
        return (order.down ? -by : by) || a.place - b.place;
      });
      list = list.map((entry) => entry.row);
    }
    heads.forEach((head, index) => {
      if (order && order.index === index) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    body.replaceChildren(...list.map((row) => el("tr", {}, columns.map((column) => {
      const value = valueOf(column, row);
      const content = column.cell ? column.cell(row) : column.text ? String(value ?? "") : format(value, column.unit);
      return el("td", {class: (column.text ? "" : "number ") + (column.mark ? column.mark(row) : "")}, content);
    }))));
  }
  draw();
  return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
    el("table", {id}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), body));
}

function listing(caption, pairs) {
  return table(null, caption, [{title: "what", get: (p) => p[0], text: true}, {title: "value", get: (p) => p[1], text: true}],
    pairs, {fixed: true});
}

function save(name, url) {
  const link = el("a", {href: url, download: name});
  document.body.append(link);
  link.click();
  link.remove();
}

const csvCell = (value) => {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
};

function saveCsv(name, rows) {
  const url = URL.createObjectURL(new Blob([rows.map((row) => row.map(csvCell).join(",")).join("\n") + "\n"], {type: "text/csv"}));
  save(name, url);
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
