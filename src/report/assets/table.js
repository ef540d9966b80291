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
  if (size !== 0 && (size < 1e-3 || size >= 1e12)) return value.toExponential(2);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(4)));
}

const counted = (count, thing) => `${plain(count)} ${thing}${count === 1 ? "" : "s"}`;

function duration(seconds) {
  if (seconds === 0) return "0\u00a0s";
  if (seconds < 1e-3) return plain(seconds * 1e6) + "\u00a0µs";
  if (seconds < 1) return plain(seconds * 1e3) + "\u00a0ms";
  if (seconds < 120) return plain(seconds) + "\u00a0s";
  const whole = Math.round(seconds), two = (n) => String(n).padStart(2, "0");
  const minutes = Math.floor(whole / 60) % 60, hours = Math.floor(whole / 3600);
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}\u00a0h` : `${minutes}:${two(whole % 60)}\u00a0min`;
}

function scaled(value, units, base) {
  let at = 0;
  while (Math.abs(value) >= base && at < units.length - 1) { value /= base; ++at; }
  return plain(value) + "\u00a0" + units[at];
}

const energyText = (joules) => joules >= 3.6e6 ? plain(joules / 3.6e6) + "\u00a0kWh" : joules >= 1000 ? plain(joules / 1000) + "\u00a0kJ" : plain(joules) + "\u00a0J";

// A value with its unit, as a person reads it; a line never ends between them. A share too small to matter is not told
// exactly, except `exactly`, as beside the lines of a chart.
function format(value, unit, exactly) {
  if (!isNumber(value)) return "–";
  switch (unit) {
    case "s": return duration(value);
    case "ms": return duration(value / 1e3);
    case "part":
      if (!exactly && value > 0 && value < 5e-5) return "<\u00a00.01\u00a0%";
      return Number(!exactly && Math.abs(value) < 0.1 ? (100 * value).toFixed(2) : (100 * value).toPrecision(Math.abs(value) >= 0.1 ? 4 : 3)) + "\u00a0%";
    case "J": return energyText(value);
    case "B": return scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
    case "B/s": return scaled(value, ["B/s", "KB/s", "MB/s", "GB/s", "TB/s"], 1000);
    case "FLOP": return scaled(value, ["FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"], 1000);
    case "FLOP/s": return scaled(value, ["FLOP/s", "KFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"], 1000);
    case "": case "1/s": case "1/J": case undefined: case null: return plain(value);  // the name says it
    default: return plain(value) + "\u00a0" + unit;
  }
}

// A change, to at most a hundredth of a percent: no measurement here is more precise.
const percent = (change) => {
  const size = Math.abs(100 * change), text = String(Number(size < 10 ? size.toFixed(2) : size.toPrecision(3)));
  return (text === "0" ? "±" : change > 0 ? "+" : "−") + text + "\u00a0%";
};

// Text that may wrap after punctuation, never within a word.
const breakable = (text) => String(text).split(/(?<=[-_\/.,:=+@])/).flatMap((part, index) => index ? [el("wbr"), part] : [part]);

// Text that wraps at spaces alone, not within "--seed" or "top-1".
const whole = (text) => String(text).split(" ").flatMap((word, index) => [index ? " " : "", word.length < 30 ? el("span", {class: "whole"}, word) : word]);

const tables = new Map();  // state by id: sort column and direction, filter, whether all rows are shown
const mostRows = 20;       // shown at first

const valueOf = (column, row) => column.get ? column.get(row) : row[column.key];

function sortRows(rows, column, down) {
  const keyed = rows.map((row, place) => ({row, place, value: valueOf(column, row)}));
  const unknown = (entry) => isNumber(entry.value) || column.text ? 0 : 1;  // comes last either way
  keyed.sort((a, b) => {
    if (unknown(a) !== unknown(b)) return unknown(a) - unknown(b);
    if (unknown(a)) return a.place - b.place;
    const by = column.text ? String(a.value).localeCompare(String(b.value), "en", {numeric: true}) : a.value - b.value;
    return (down ? -by : by) || a.place - b.place;
  });
  return keyed.map((entry) => entry.row);
}

// A table that is sorted by its heads, filtered by words where it is long, and saved whole as CSV; on narrow screens its
// rows become blocks.
// columns: [{title, unit, key or get(row), text: true for words, cell(row): what is shown, mark(row): a class, head: instead of the title}]
// options: {fixed: it is not sorted, most: rows shown at first, onfilter(rows): told which rows the filter leaves}
function table(id, caption, columns, rows, options) {
  if (!rows.length) return null;
  options = options || {};
  if (!tables.has(id)) tables.set(id, {order: null, words: "", all: false});
  const state = tables.get(id), most = options.most || mostRows, blocks = columns.length > 3;
  const body = el("tbody", {role: "rowgroup"});
  const sortBy = (index, down) => { state.order = {index, down}; draw(); };
  const heads = columns.map((column, index) => el("th", {scope: "col", role: "columnheader", class: column.text ? "" : "number"}, options.fixed ? column.head || whole(column.title)
    : el("button", {type: "button", onclick: () => sortBy(index, state.order && state.order.index === index ? !state.order.down : !column.text)}, column.head || whole(column.title))));
  const shownText = (column, row) => column.text ? String(valueOf(column, row) ?? "") : format(valueOf(column, row), column.unit);
  const matches = (row) => state.words.toLowerCase().split(/\s+/).every((word) => columns.some((column) => column.text && shownText(column, row).toLowerCase().includes(word)));
  const filtered = () => state.words ? rows.filter(matches) : rows;
  const more = el("button", {type: "button", class: "more", onclick: () => { state.all = !state.all; draw(); }});
  function draw() {
    const order = state.order && columns[state.order.index] ? state.order : null;
    let list = filtered();
    if (order) list = sortRows(list, columns[order.index], order.down);
    heads.forEach((head, index) => {
      if (order && order.index === index) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    more.hidden = list.length <= most;
    more.textContent = state.all ? `Show the first ${most}` : `Show all ${plain(list.length)} rows`;
    body.replaceChildren(...(state.all ? list : list.slice(0, most)).map((row) => el("tr", {role: "row"}, columns.map((column) =>
      el("td", {role: "cell", "data-title": column.title, class: (column.text ? "" : "number ") + (column.mark ? column.mark(row) : "")}, column.cell ? column.cell(row) : shownText(column, row))))));
  }
  draw();
  const tools = [];
  if (!options.fixed && blocks && rows.length > 1)
    tools.push(el("select", {class: "sort", "aria-label": `Sort ${caption} by`, onchange: (event) => { if (event.target.value !== "") sortBy(Number(event.target.value), !columns[Number(event.target.value)].text); }},
      el("option", {value: ""}, "sort by"), columns.map((column, index) => el("option", {value: index}, column.title))));
  if (rows.length > 12 && columns.some((column) => column.text))
    tools.push(el("input", {type: "search", placeholder: "filter", value: state.words, "aria-label": `Filter ${caption}`,
      oninput: (event) => { state.words = event.target.value.trim(); draw(); if (options.onfilter) options.onfilter(filtered()); }}));
  if (!options.fixed)
    tools.push(el("button", {type: "button", title: "Save the whole table, CSV", "aria-label": `Save the whole table, CSV: ${caption}`, onclick: () => saveTable(id, columns, rows)}, "CSV"));
  return el("div", {class: "table"},
    el("div", {class: "bar"}, el("span", {class: "caption", id: `${id}-caption`}, caption), tools),
    el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
      el("table", {id, role: "table", "aria-label": caption, class: blocks ? "blocks" : ""}, el("thead", {role: "rowgroup"}, el("tr", {role: "row"}, heads)), body)),
    more);
}

const withUnit = (column) => !column.unit ? column.title : `${column.title} (${column.unit === "part" ? "fraction" : column.unit})`;
const saveTable = (id, columns, rows) => saveCsv(id + ".csv", [columns.map(withUnit), ...rows.map((row) => columns.map((column) => valueOf(column, row)))]);

function listing(id, caption, pairs) {
  return table(id, caption, [{title: "what", get: (p) => p[0], text: true}, {title: "value", get: (p) => p[1], text: true}], pairs, {fixed: true, most: 30});
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
