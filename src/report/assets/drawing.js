// What charts draw besides lines: marks, boxes, ranges, names, and points beyond the scale.

const quantile = (rising, part) => {
  const at = part * (rising.length - 1), low = Math.floor(at), high = Math.ceil(at);
  return rising[low] + (rising[high] - rising[low]) * (at - low);
};

// The part of the y axis that holds nearly all values, where a few lie so far from them that all would be squeezed into
// less than half of the chart; null where everything fits. Far is more than four times the distance of the quartiles: of
// all points, or of the boxes where there are some.
function limitsOf(spec) {
  const ends = (box) => [box.low, box.q1, box.median, box.q3, box.high];
  const ofPoints = spec.sets.flatMap((set) => set.mean ? [] : set.points.map((p) => p.y)).filter(isNumber);
  const values = (spec.boxes ? spec.boxes.flatMap(ends) : [...ofPoints]).filter(isNumber).sort((a, b) => a - b);
  if (values.length < 5) return null;
  const q1 = quantile(values, 0.25), q3 = quantile(values, 0.75), reach = 4 * Math.max(q3 - q1, 1e-4 * Math.abs(q1 + q3));
  const isNear = (value) => value >= q1 - reach && value <= q3 + reach, near = values.filter(isNear);
  const far = spec.boxes ? spec.boxes.filter((box) => !ends(box).every(isNear)).length : values.length - near.length;
  if (far > (spec.boxes ? Math.max(3, 0.1 * spec.boxes.length) : Math.max(5, 0.02 * values.length))) return null;
  const low = near[0], high = near[near.length - 1], room = 0.06 * (high - (spec.zero ? 0 : low) || Math.abs(high));
  const least = Math.min(values[0], ...ofPoints), most = Math.max(values[values.length - 1], ...ofPoints), min = spec.zero ? 0 : low - room, max = high + room;
  if (Math.max(most, max) - Math.min(least, min) < 2 * (max - min)) return null;
  return {min, max, beyond: ofPoints.filter((value) => value < min || value > max).length};
}

// Runs `paint` with drawing bounded to the chart's area.
function inArea(chart, paint) {
  const context = chart.ctx, area = chart.chartArea;
  context.save();
  context.beginPath();
  context.rect(area.left, area.top, area.right - area.left, area.bottom - area.top);
  context.clip();
  paint(context, area);
  context.restore();
}
const specOf = (chart) => chart.options.card && chart.options.card.spec;

// Every point of the sets that are shown: act(point, its element, its set).
function eachPoint(chart, act) {
  const spec = specOf(chart);
  if (!spec) return;
  spec.sets.forEach((set, index) => {
    if (chart.isDatasetVisible(index)) set.points.forEach((p, at) => act(p, chart.getDatasetMeta(index).data[at], set));
  });
}

// Text that can be read where points and lines cross it.
function written(context, text, x, y) {
  context.lineJoin = "round";
  context.lineWidth = 4;
  context.strokeStyle = variable("--card");
  context.strokeText(text, x, y);
  context.fillStyle = variable("--ink");
  context.fillText(text, x, y);
}

// Arrows at the edge for points beyond the scale, the first few with their values: one for points that lie together.
const beyond = {
  id: "beyond",
  afterDatasetsDraw(chart) {
    const card = chart.options.card;
    if (!card || !card.limits || card.whole) return;
    const context = chart.ctx, area = chart.chartArea, {min, max} = card.limits, found = [];
    eachPoint(chart, (p, element, set) => {
      if (set.mean || !isNumber(p.y) || (p.y >= min && p.y <= max)) return;
      const x = chart.scales.x.getPixelForValue(p.x), up = p.y > max, near = found.find((other) => other.up === up && (card.spec.boxes ? other.box === Math.round(p.x) : Math.abs(other.x - x) < 9));
      if (x < area.left - 1 || x > area.right + 1) return;
      if (!near) found.push({x, y: p.y, up, box: Math.round(p.x)});
      else if (Math.abs(p.y - min) > Math.abs(near.y - min)) near.y = p.y;
    });
    context.save();
    context.font = `11px ${Chart.defaults.font.family}`;
    let free = area.left;  // right of the last value that was written
    for (const {x, y, up} of found.sort((a, b) => a.x - b.x)) {
      const tip = up ? area.top + 1 : area.bottom - 1, foot = up ? tip + 8 : tip - 8, text = format(y, card.spec.unit), width = context.measureText(text).width;
      context.fillStyle = variable("--bad");
      context.beginPath();
      context.moveTo(x, tip);
      context.lineTo(x - 5, foot);
      context.lineTo(x + 5, foot);
      context.fill();
      const left = x + 8 + width < area.right ? x + 8 : x - 8 - width;
      if (left < free + 4) continue;
      free = left + width;
      written(context, text, left, up ? tip + 9 : tip - 2);
    }
    context.restore();
  },
};

// Thin lines from low to high, behind the points.
const ranges = {
  id: "ranges",
  beforeDatasetsDraw(chart) {
    const spec = specOf(chart);
    if (!spec || !spec.ranges) return;
    inArea(chart, (context) => {
      context.strokeStyle = variable("--soft") + "88";
      context.lineWidth = 1;
      context.beginPath();
      for (const range of spec.ranges) {
        const x = chart.scales.x.getPixelForValue(range.x);
        context.moveTo(x, chart.scales.y.getPixelForValue(range.low));
        context.lineTo(x, chart.scales.y.getPixelForValue(range.high));
      }
      context.stroke();
    });
  },
};

// Names beside points that have a tag, where there is room.
const tags = {
  id: "tags",
  afterDatasetsDraw(chart) {
    const taken = [], area = chart.chartArea, context = chart.ctx;
    context.save();
    context.font = `11px ${Chart.defaults.font.family}`;
    context.textBaseline = "middle";
    eachPoint(chart, (p, element) => {
      if (!p.tag || !element || !isNumber(element.y)) return;
      const width = context.measureText(p.tag).width, away = (p.size || 4) + 3;
      const spots = [[element.x + away, element.y], [element.x - away - width, element.y], [element.x - width / 2, element.y - away - 5], [element.x - width / 2, element.y + away + 5]];
      const spot = spots.find(([x, y]) => x > area.left && x + width < area.right && y > area.top + 6 && y < area.bottom - 6
        && !taken.some((other) => x < other.x + other.width + 4 && other.x < x + width + 4 && Math.abs(y - other.y) < 13));
      if (!spot) return;
      taken.push({x: spot[0], y: spot[1], width});
      written(context, p.tag, spot[0], spot[1]);
    });
    context.restore();
  },
};

// Shaded stretches: throttling.
const marks = {
  id: "marks",
  beforeDatasetsDraw(chart) {
    const spec = specOf(chart);
    if (!spec || !spec.marks) return;
    inArea(chart, (context, area) => {
      context.fillStyle = variable("--warn-line") + "33";
      for (const mark of spec.marks) {
        const from = chart.scales.x.getPixelForValue(mark.x), to = chart.scales.x.getPixelForValue(mark.to ?? mark.x);
        context.fillRect(from, area.top, Math.max(1.5, to - from), area.bottom - area.top);
      }
    });
  },
};

// The range being selected by dragging.
const selection = {
  id: "selection",
  afterDraw(chart) {
    const drag = chart.options.card && chart.options.card.drag;
    if (!drag) return;
    inArea(chart, (context, area) => {
      const from = chart.scales.x.getPixelForValue(drag.from), to = chart.scales.x.getPixelForValue(drag.to);
      context.fillStyle = variable("--focus") + "33";
      context.fillRect(Math.min(from, to), area.top, Math.abs(to - from), area.bottom - area.top);
    });
  },
};

// Boxes from the first to the third quartile with whiskers. They lie over the points, which show through.
const boxes = {
  id: "boxes",
  afterDatasetsDraw(chart) {
    const spec = specOf(chart), x = chart.scales.x, y = chart.scales.y;
    if (!spec || !spec.boxes) return;
    inArea(chart, (context) => {
      const line = (x1, y1, x2, y2) => { context.beginPath(); context.moveTo(x1, y1); context.lineTo(x2, y2); context.stroke(); };
      context.strokeStyle = variable("--ink");
      context.fillStyle = variable("--soft") + "33";
      context.lineWidth = 1.4;
      spec.boxes.forEach((box, index) => {
        const left = x.getPixelForValue(index - 0.3), right = x.getPixelForValue(index + 0.3), middle = (left + right) / 2;
        const [low, q1, mid, q3, high] = [box.low, box.q1, box.median, box.q3, box.high].map((value) => y.getPixelForValue(value));
        context.fillRect(left, q3, right - left, q1 - q3);
        context.strokeRect(left, q3, right - left, q1 - q3);
        line(left, mid, right, mid);
        line(middle, q1, middle, low);
        line(middle, q3, middle, high);
        line((left + middle) / 2, low, (right + middle) / 2, low);
        line((left + middle) / 2, high, (right + middle) / 2, high);
      });
    });
  },
};
