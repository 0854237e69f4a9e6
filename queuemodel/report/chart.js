// Charts as SVG, drawn at the width that there is: lines with bands, stacked bars, and the operations of a step.

const MARGIN = { left: 62, right: 14, top: 26, bottom: 44 };

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Round numbers from `low` to `high`; on a logarithmic axis powers of ten and, the less it spans, more between them. */
function ticks({ low, high, log, whole }, count = 6) {
  if (log) {
    const steps = high / low > 1000 ? [1] : high / low > 6 ? [1, 2, 5] : [1, 2, 3, 4, 5, 6, 7, 8, 9];
    const first = Math.floor(Math.log10(low));
    const powers = Array.from({ length: Math.floor(Math.log10(high)) - first + 1 }, (_, i) => 10 ** (first + i));
    const found = powers.flatMap((power) => steps.map((step) => step * power));
    return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  }
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const round = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const step = whole ? Math.max(1, Math.round(round)) : round;
  return Array.from({ length: Math.floor((high - low) / step + 1.001) }, (_, i) => low + i * step);
}

function scale(low, high, from, to, log) {
  const place = log ? Math.log : (value) => value;
  return (value) => from + ((place(value) - place(low)) / (place(high) - place(low))) * (to - from);
}

/**
 * Draw marks into `host`, whose old picture goes; what has a `label` stands in the legend above. `hover` has a text for
 * each x of the last line or bars, which shows while a pointer is nearest to it.
 * x and y are {low, high, label, log, whole, at, names}; at: where ticks are; names: rows from top to bottom instead of numbers.
 */
function drawChart(host, { title, x, y, marks, hover, height = 340 }) {
  const width = Math.max(300, host.clientWidth || 680);
  const left = y.names ? 8 + 7.2 * Math.max(...y.names.map((name) => name.length)) : MARGIN.left;
  const across = scale(x.low, x.high, left, width - MARGIN.right, x.log);
  const up = y.names
    ? scale(-0.5, y.names.length - 0.5, MARGIN.top, height - MARGIN.bottom)
    : scale(y.low, y.high, height - MARGIN.bottom, MARGIN.top, y.log);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  const floor = height - MARGIN.bottom;
  const plot = svg("g");
  const axes = svg("g", { class: "axes" });
  const clip = `inside-${(drawChart.count = (drawChart.count || 0) + 1)}`;
  const inside = { x: left, y: MARGIN.top, width: width - MARGIN.right - left, height: floor - MARGIN.top };
  picture.append(svg("clipPath", { id: clip }, svg("rect", inside)));
  for (const mark of marks) {
    const clipped = ["band", "line", "bars"].includes(mark.kind) ? { "clip-path": `url(#${clip})` } : {};
    plot.append(svg("g", clipped, ...DRAW[mark.kind](mark, across, up, { left, width, floor })));
  }
  let last = -Infinity;
  for (const value of x.at || ticks(x, width / 90)) {
    axes.append(svg("line", { x1: across(value), x2: across(value), y1: floor, y2: floor + 4 }));
    if (across(value) - last < 7 * readable(value).length + 8) continue; // no room for its number
    last = across(value);
    axes.append(text(across(value), floor + 17, readable(value), { "text-anchor": "middle" }));
  }
  if (y.names) {
    y.names.forEach((name, row) => axes.append(text(left - 6, up(row) + 4, name, { "text-anchor": "end" })));
  } else {
    for (const value of ticks(y)) {
      axes.append(svg("line", { x1: left, x2: width - MARGIN.right, y1: up(value), y2: up(value), class: "grid" }));
      axes.append(text(left - 7, up(value) + 4, readable(value), { "text-anchor": "end" }));
    }
    const turned = `translate(14 ${(MARGIN.top + floor) / 2}) rotate(-90)`;
    axes.append(text(0, 0, y.label, { transform: turned, "text-anchor": "middle" }));
  }
  axes.append(svg("line", { x1: left, x2: width - MARGIN.right, y1: floor, y2: floor }));
  axes.append(text((left + width - MARGIN.right) / 2, height - 8, x.label, { "text-anchor": "middle" }));
  picture.append(axes, plot);
  host.replaceChildren(legend(marks), picture);
  if (hover) host.append(readout(picture, hover, marks.findLast(({ kind }) => kind === "line" || kind === "bars").x.map(across)));
}

/** A line below a picture that has the text of the place nearest to the pointer, which a rule marks. */
function readout(picture, texts, xs) {
  const hint = "Point at the figure for values.";
  const words = h("p", { class: "readout" }, hint);
  const { y, height } = picture.querySelector("clipPath rect").getBBox();
  const rule = svg("line", { y1: y, y2: y + height, class: "rule" });
  picture.append(rule);
  picture.addEventListener("pointermove", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse()).x;
    const nearest = xs.reduce((best, x, i) => (Math.abs(x - at) < Math.abs(xs[best] - at) ? i : best), 0);
    for (const end of ["x1", "x2"]) rule.setAttribute(end, xs[nearest]);
    rule.classList.add("shown");
    words.textContent = texts[nearest];
  });
  picture.addEventListener("pointerleave", () => {
    rule.classList.remove("shown");
    words.textContent = hint;
  });
  return words;
}

function text(x, y, words, attributes = {}) {
  return svg("text", { x, y, ...attributes }, String(words));
}

function legend(marks) {
  const item = (mark) => h("li", {}, h("span", painted(mark, `sample ${mark.kind}`)), mark.label);
  return h("ul", { class: "legend" }, ...marks.filter((one) => one.label).map(item));
}

function painted(mark, kind) {
  return { class: `${kind} ${mark.class || ""}`, ...(mark.color ? { style: `--c: ${mark.color}` } : {}) };
}

function points(xs, ys, across, up) {
  return xs.map((value, i) => `${across(value).toFixed(2)},${up(ys[i]).toFixed(2)}`);
}

/** How each kind of mark is drawn. */
const DRAW = {
  shade(mark, across, up, { left, floor }) {
    const width = Math.max(across(mark.to) - left, 0);
    return [svg("rect", { x: left, y: MARGIN.top, width, height: floor - MARGIN.top, ...painted(mark, "shade") })];
  },
  band(mark, across, up) {
    const there = points(mark.x, mark.high, across, up);
    const back = points(mark.x, mark.low, across, up).reverse();
    return [svg("polygon", { points: [...there, ...back].join(" "), ...painted(mark, "band") })];
  },
  line(mark, across, up) {
    const path = svg("polyline", { points: points(mark.x, mark.y, across, up).join(" "), ...painted(mark, "line") });
    return mark.dots ? [path, ...DRAW.dots({ ...mark, r: 2.2 }, across, up)] : [path];
  },
  dots(mark, across, up) {
    return mark.x.map((value, i) =>
      svg("circle", { cx: across(value), cy: up(mark.y[i]), r: mark.r || 4, ...painted(mark, "dots") }),
    );
  },
  vertical(mark, across, up, { floor }) {
    const x = across(mark.x);
    const line = svg("line", { x1: x, x2: x, y1: MARGIN.top, y2: floor, ...painted(mark, "vertical") });
    return [line, text(x, MARGIN.top - 8, mark.text || "", { "text-anchor": "middle", class: mark.class })];
  },
  horizontal(mark, across, up, { left, width }) {
    const place = { x1: left, x2: width - MARGIN.right, y1: up(mark.y), y2: up(mark.y) };
    return [svg("line", { ...place, ...painted(mark, "vertical") }), text(left + 4, up(mark.y) - 5, mark.text)];
  },
  bars(mark, across, up) {
    const apart = mark.x.map((value, i) => across(value) - across(i ? mark.x[i - 1] : 0));
    const width = Math.max(0.8 * Math.min(...apart), 1);
    return mark.x.map((value, i) => {
      const [y, floor] = [up(mark.high[i]), up(mark.low[i])];
      const place = { x: across(value) - width / 2, width, y, height: Math.max(floor - y, 0) };
      return svg("rect", { ...place, ...painted(mark, "bars") });
    });
  },
  /** From `low` to `high` on row `y`, `share` of the row's height. */
  spans(mark, across, up) {
    const high = (up(1) - up(0)) * (mark.share || 0.6);
    return mark.y.map((row, i) => {
      const place = { x: across(mark.low[i]), width: Math.max(across(mark.high[i]) - across(mark.low[i]), 0.8) };
      const span = svg("rect", { ...place, y: up(row) - high / 2, height: high, ...painted(mark, "spans") });
      if (mark.titles) span.append(svg("title", {}, mark.titles[i]));
      return span;
    });
  },
};
