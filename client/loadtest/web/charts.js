"use strict";
// Charts in SVG for Weir's two pages: the load report and the live page. Drawn anew when the width changes, so that
// text keeps its size on narrow screens. What comes from outside (names, messages) becomes text nodes and attributes,
// never markup.

// Counts on <html> what went wrong, for whoever tests the page.
const pageErrors = { count: 0 };
document.documentElement.dataset.errors = 0;
for (const kind of ["error", "unhandledrejection"])
  window.addEventListener(kind, () => { document.documentElement.dataset.errors = ++pageErrors.count; });

const fill = (node, attributes, children) => {
  for (const [key, value] of Object.entries(attributes ?? {}))
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  node.append(...children.flat(9).filter((child) => child !== null && child !== undefined));
  return node;
};
// element("p", {class: "why"}, "text", child…)
const element = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const shape = (name, attributes, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

// ---- Numbers as people read them. Absent ones are a dash.

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const digits = (value, places) => {
  const exactly = { minimumFractionDigits: places, maximumFractionDigits: places };
  return (value || 0).toLocaleString("en-US", exactly).replace("-", "−");  // || 0: no −0
};
const orDash = (write) => (value) => (isNumber(value) ? write(value) : "–");
// Three significant digits at least, none cut off before the point.
const significant = (value) => {
  const size = Math.abs(value);
  return digits(value, size === 0 || size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4);
};
const scaled = (value, base, units) => {
  let unit = 0;
  for (; Math.abs(value) >= base * 0.9995 && unit + 1 < units.length; ++unit) value /= base;
  return [value, units[unit]];
};
const format = {
  count: orDash((value) => digits(value, 0)),
  number: orDash(significant),
  ms: orDash((value) => {
    if (value !== 0 && Math.abs(value) < 0.1) return `${significant(value * 1000)} µs`;
    return Math.abs(value) < 10000 ? `${significant(value)} ms` : `${significant(value / 1000)} s`;
  }),
  bytes: orDash((value) => {
    const [number, unit] = scaled(value, 1024, ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"]);
    return `${unit === "bytes" ? digits(number, 0) : significant(number)} ${unit}`;
  }),
  // As the lesson writes them: 16.8M, 134.2M; then B for thousand millions, T for a thousand of those.
  short: orDash((value) => {
    const [number, unit] = scaled(value, 1000, ["", "K", "M", "B", "T", " quadrillion", " quintillion"]);
    return digits(number, Number.isInteger(number) ? 0 : 1) + unit;
  }),
  // 8.0×, 128×, 6,100×
  ratio: orDash((value) => {
    if (value >= 1000) value = Number(value.toPrecision(2));
    return `${digits(value, value < 10 ? 1 : 0)}×`;
  }),
  duration: orDash((seconds) => {
    if (seconds < 60) return `${digits(seconds, seconds < 10 ? 1 : 0)} s`;
    let rest = Math.round(seconds);
    const words = [];
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
      if (rest >= size && words.length < 2) words.push(`${Math.floor(rest / size)} ${unit}`);
      rest %= size;
    }
    return words.join(" ");
  }),
};

// ---- Each model has a colour (palette of Okabe and Ito, shifted for contrast: page.css), a marker and a dash of its
// own, so that colour is never the only cue. Style 0 is ink: the softmax baseline.

const kMarkers = [
  "M-4,-4 4,4M4,-4 -4,4",
  "M0,-4.2A4.2,4.2 0 1 1 0,4.2A4.2,4.2 0 1 1 0,-4.2Z",
  "M-3.8,-3.8H3.8V3.8H-3.8Z",
  "M0,-5 4.8,3.6H-4.8Z",
  "M0,-5.4 5.4,0 0,5.4 -5.4,0Z",
  "M0,5 4.8,-3.6H-4.8Z",
  "M-5,0H5M0,-5V5",
  "M-5,-2H5V2H-5Z",
];
const kDashes = [null, null, "9 3", "3 3", "10 3 2 3", "6 2 2 2 2 2", "14 4", "2 5"];
const kStyles = kMarkers.length;

const marker = (style, x, y) => {
  const number = style % kStyles;
  return shape("path", { d: kMarkers[number], class: `marker s${number}`, transform: `translate(${x},${y})` });
};
const dashOf = ({ dotted, style }) => (dotted ? "1 4" : kDashes[style % kStyles]);
const swatch = (series) => {
  const line = { x1: 0, y1: 6, x2: 34, y2: 6, class: `line s${series.style % kStyles}`,
                 "stroke-dasharray": dashOf(series) };
  return shape("svg", { class: "swatch", viewBox: "0 0 34 12", "aria-hidden": "true" },
      series.line === false ? null : shape("line", line),
      series.markers === false ? null : marker(series.style, 17, 6));
};
const legend = (seriesList) =>
    element("ul", { class: "legend" }, seriesList.map((series) => element("li", null, swatch(series), series.name)));

// ---- Scales

const logTicks = (low, high, binary) => {
  const ticks = [];
  if (binary) {
    const span = Math.log2(high / low);
    const step = [1, 2, 5, 10].find((candidate) => span / candidate <= 7) ?? 20;
    for (let exponent = Math.ceil(Math.log2(low) / step) * step; 2 ** exponent <= high; exponent += step)
      ticks.push(2 ** exponent);
    return ticks;
  }
  const span = Math.log10(high / low);
  const decades = Math.max(1, Math.ceil(span / 8));
  const mantissas = span <= 1.3 ? [1, 1.5, 2, 3, 4, 5, 7] : span <= 3 ? [1, 2, 5] : [1];
  for (let exponent = Math.floor(Math.log10(low)); 10 ** exponent <= high; exponent += decades)
    for (const mantissa of mantissas) {
      const tick = Number((mantissa * 10 ** exponent).toPrecision(3));
      if (tick >= low && tick <= high) ticks.push(tick);
    }
  return ticks;
};
const linearStep = (span, count, binary) => {
  const raw = Math.max(span / count, 1e-12);
  if (binary) return 2 ** Math.max(0, Math.ceil(Math.log2(raw)));
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((mantissa) => mantissa * power).find((step) => step >= raw * 0.999);
};
const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
// axis: {scale: "log" | "linear" | "category", names, low, high, binary, whole}; pixels from `start` to `end`.
const makeScale = (axis, values, start, end) => {
  const pixels = Math.abs(end - start);
  if (axis.scale === "category") {
    const step = (end - start) / axis.names.length;
    return { at: (value) => start + (value + 0.5) * step, ticks: axis.names.map((name, index) => index) };
  }
  let low = axis.low ?? least(values), high = axis.high ?? most(values);
  if (!values.length && axis.low === undefined) [low, high] = [1, 10];
  if (axis.scale === "log") {
    const factor = axis.factor ?? 8;  // a narrower span would show noise as if it were a trend
    if (high / low < factor)
      [low, high] = [low / Math.sqrt(factor * low / high), high * Math.sqrt(factor * low / high)];
    const margin = (high / low) ** (axis.low === undefined ? 0.04 : 0);
    [low, high] = [low / margin, high * margin];
    const at = (value) => start + (Math.log(value / low) / Math.log(high / low)) * (end - start);
    return { at, low, high, ticks: logTicks(low, high, axis.binary) };
  }
  if (axis.zero) [low, high] = [Math.min(0, low), Math.max(0, high)];
  if (high === low) high = low + 1;
  const fine = linearStep(high - low, Math.max(2, Math.min(7, pixels / 55)), axis.binary);
  const step = axis.step ?? (axis.whole ? Math.max(1, fine) : fine);
  if (axis.low === undefined) [low, high] = [Math.floor(low / step) * step, Math.ceil(high / step) * step];
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1000; tick += step)
    ticks.push(Math.abs(tick) < step / 1000 ? 0 : tick);
  return { at: (value) => start + ((value - low) / (high - low)) * (end - start), low, high, ticks };
};

// ---- The chart

const fits = (axis, value) => isNumber(value) && (axis.scale !== "log" || value > 0);
const drawable = (spec, series) => series.points.filter(([x, y]) => fits(spec.x, x) && fits(spec.y, y));
// The path of a line; a point without a value leaves a gap.
const linePath = (spec, points, xScale, yScale) => {
  let path = "", pen = false;
  for (const [x, y] of points) {
    const here = fits(spec.x, x) && fits(spec.y, y);
    if (here) path += `${pen ? "L" : "M"}${xScale.at(x).toFixed(1)},${yScale.at(y).toFixed(1)}`;
    pen = here;
  }
  return path;
};
const bandPath = (spec, band, xScale, yScale) => {
  const sound = band.filter(([x, low, high]) => fits(spec.x, x) && fits(spec.y, low) && fits(spec.y, high));
  if (sound.length < 2) return "";
  const corner = ([x, y]) => `${xScale.at(x).toFixed(1)},${yScale.at(y).toFixed(1)}`;
  return `M${sound.map(([x, low]) => corner([x, low])).join("L")}L${
      sound.reverse().map(([x, , high]) => corner([x, high])).join("L")}Z`;
};
// Names at the ends of lines, moved apart where they would overlap.
const endLabels = (ends, top, bottom) => {
  ends.sort((a, b) => a.y - b.y);
  ends.forEach((end, index) => {
    end.label = index ? Math.max(end.y, ends[index - 1].label + 15) : Math.max(end.y, top);
  });
  for (let index = ends.length - 1, limit = bottom; index >= 0; --index, limit -= 15)
    ends[index].label = Math.min(ends[index].label, limit);
};
// Ticks are round: 1.00 MiB is 1 MiB.
const trimmed = (label) => label.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");
const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

const drawAxes = (spec, svg, area, xScale, yScale, xLabel, yLabel) => {
  const { left, right, top, bottom } = area;
  for (const tick of yScale.ticks) {
    const y = yScale.at(tick);
    svg.append(shape("line", { x1: left, x2: right, y1: y, y2: y, class: tick === 0 ? "zero" : "grid" }),
        shape("text", { x: left - 8, y: y + 4, class: "tick end" }, yLabel(tick)));
  }
  let free = -Infinity;  // labels that would overlap are left out
  for (const tick of xScale.ticks) {
    const x = xScale.at(tick), label = xLabel(tick), width = label.length * 6.6 + 10;
    if (spec.x.scale !== "category") svg.append(shape("line", { x1: x, x2: x, y1: top, y2: bottom, class: "grid" }));
    if (x - width / 2 < free) continue;
    free = x + width / 2;
    svg.append(shape("text", { x, y: bottom + 18, class: "tick middle" }, label));
  }
  if (spec.y2) {  // the same scale in another unit: `factor` of it is one of the first
    for (const tick of logTicks(yScale.low * spec.y2.factor, yScale.high * spec.y2.factor, false))
      svg.append(shape("text", { x: right + 8, y: yScale.at(tick / spec.y2.factor) + 4, class: "tick" },
          trimmed(spec.y2.format(tick))));
    svg.append(shape("text", { x: right + 60, y: 14, class: "axis end" }, spec.y2.label));
  }
  svg.append(shape("text", { x: 2, y: 14, class: "axis" }, spec.y.label),
      shape("text", { x: right, y: bottom + 36, class: "axis end" }, spec.x.label));
};

// Draws `spec` into `figure`:
//   {id, label, height, x: axis, y: axis, legend: false?, endLabels: false?,
//    series: [{name, style, points: [[x, y]…], band: [[x, low, high]…], line, markers, dotted, faint}],
//    marks: [{x, y, text, left}], y2: {label, factor, format}: a second unit for a log y}
// axis: {label, scale, format, tick, …}; its format is that of the read-out, and of the ticks if there is no other
const drawChart = (figure, spec) => {
  const width = Math.max(260, Math.floor(figure.clientWidth || 760)), height = spec.height ?? 320;
  const seriesList = spec.series.filter((series) => drawable(spec, series).length > 0);
  const named = seriesList.filter((series) => !series.faint);
  const direct = width >= 600 && spec.endLabels !== false && !spec.y2 && named.length > 0;
  const xs = [], ys = [];
  for (const series of seriesList) {
    for (const [x, y] of drawable(spec, series)) {
      xs.push(x);
      ys.push(y);
    }
    for (const [, , high] of series.band ?? [])
      if (fits(spec.y, high)) ys.push(high);
  }
  const xLabel = (tick) =>
      (spec.x.scale === "category" ? spec.x.names[tick] : trimmed((spec.x.tick ?? spec.x.format)(tick)));
  const yLabel = (tick) => trimmed((spec.y.tick ?? spec.y.format)(tick));
  const top = 28, bottom = height - 44;
  const yScale = makeScale(spec.y, ys, bottom, top);
  const left = 16 + 6.7 * Math.max(2, ...yScale.ticks.map((tick) => yLabel(tick).length));
  const labelRoom = () => 20 + 7.3 * Math.max(...named.map((series) => cut(series.name, 24).length));
  const right = width - (direct ? labelRoom() : spec.y2 ? 62 : 16);
  const xScale = makeScale(spec.x, xs, left, right);

  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", tabindex: 0,
    "aria-label": `${spec.label}. ${named.map((series) => series.name).join(", ")}.`,
    "data-chart": spec.id, "data-series": seriesList.length });
  drawAxes(spec, svg, { left, right, top, bottom }, xScale, yScale, xLabel, yLabel);
  if (seriesList.length === 0)
    svg.append(shape("text", { x: (left + right) / 2, y: (top + bottom) / 2, class: "axis middle" },
        spec.empty ?? "nothing measured"));
  for (const series of seriesList) {
    const band = series.band ? bandPath(spec, series.band, xScale, yScale) : "";
    if (band) svg.append(shape("path", { d: band, class: `band s${series.style % kStyles}` }));
  }
  const ends = [];
  for (const series of seriesList) {
    const style = series.style % kStyles, points = drawable(spec, series);
    if (series.line !== false)
      svg.append(shape("path", {
        d: linePath(spec, series.points, xScale, yScale),
        class: `line s${style}`,
        "stroke-dasharray": dashOf(series)
      }));
    if (series.markers !== false)
      for (const [x, y] of points) svg.append(marker(series.style, xScale.at(x).toFixed(1), yScale.at(y).toFixed(1)));
    const [x, y] = points[points.length - 1];
    if (!series.faint) ends.push({ x: xScale.at(x), y: yScale.at(y), name: cut(series.name, 24), style });
  }
  for (const mark of spec.marks ?? []) drawMark(svg, mark, xScale, yScale, { left, right, top, bottom });
  if (direct) {
    const early = ends.filter((end) => end.x + 20 + 7 * end.name.length < right),
          late = ends.filter((end) => !early.includes(end));
    for (const end of early)
      svg.append(shape("text", { x: end.x + 10, y: end.y + 14, class: `name halo s${end.style}` }, end.name));
    endLabels(late, top + 4, bottom);
    for (const end of late)
      svg.append(
          shape("path", { d: `M${end.x + 5},${end.y}L${right + 12},${end.label}`, class: `leader s${end.style}` }),
          shape("text", { x: right + 15, y: end.label + 4, class: `name s${end.style}` }, end.name));
  }
  const legendList = direct || spec.legend === false || named.length < 1 ? null : legend(named);
  const box = element("div", { class: "readout", "aria-live": "polite", hidden: "" });
  figure.replaceChildren(...[legendList, svg, box].filter(Boolean));
  readOut(figure, svg, box, spec, seriesList, xScale, { left, right, top, bottom, width });
};

// A vertical line (x) or a point (x, y) with a few words.
const drawMark = (svg, mark, xScale, yScale, { left, right, top, bottom }) => {
  const x = xScale.at(mark.x);
  if (!(x >= left - 1 && x <= right + 1)) return;
  const ends = mark.left || x > (left + right) / 2;
  if (!isNumber(mark.y))
    svg.append(shape("line", { x1: x, x2: x, y1: top, y2: bottom, class: "mark" }));
  else
    svg.append(shape("circle", { cx: x, cy: yScale.at(mark.y), r: 7, class: "mark" }));
  const y = isNumber(mark.y) ? Math.max(top + 12, yScale.at(mark.y) - 12) : top + 12;
  const length = 6.5 * (mark.text ?? "").length;  // kept inside the picture
  const textX = ends ? Math.max(x - 8, length) : Math.min(x + 8, right + 16 - length);
  svg.append(shape("text", { x: textX, y, class: ends ? "note end" : "note" }, mark.text));
};

// Pointer, or arrow keys on the focused chart: every series' value at the nearest x.
const readOut = (figure, svg, box, spec, seriesList, xScale, area) => {
  const told = seriesList.filter((series) => !series.silent);
  const xs = [...new Set(told.flatMap((series) => drawable(spec, series).map(([x]) => x)))].sort((a, b) => a - b);
  if (xs.length === 0) return;
  const guide = shape("line", { y1: area.top, y2: area.bottom, class: "guide", visibility: "hidden" });
  svg.append(guide);
  let at = -1;
  const show = (index) => {
    at = Math.max(0, Math.min(xs.length - 1, index));
    const x = xs[at], pixel = xScale.at(x);
    for (const end of ["x1", "x2"]) guide.setAttribute(end, pixel);
    guide.setAttribute("visibility", "visible");
    const title = spec.x.scale === "category" ? spec.x.names[x] : `${spec.x.prefix ?? ""}${spec.x.format(x)}`;
    const found = seriesList.map((series) => [series, drawable(spec, series).find((point) => point[0] === x)]);
    const rows = found.filter(([, point]) => point).sort((a, b) => b[1][1] - a[1][1]).map(([series, point]) => {
      const band = (series.band ?? []).find((candidate) => candidate[0] === x);
      const upTo = band && series.bandName ? ` (${series.bandName} ${spec.y.format(band[2])})` : "";
      return element("li", null, swatch(series), `${series.name}: ${spec.y.format(point[1])}${upTo}`);
    });
    box.replaceChildren(element("b", null, title), element("ul", null, rows));
    box.hidden = false;
    const share = pixel / area.width;
    box.style.left = share < 0.5 ? `calc(${100 * share}% + 14px)` : "auto";
    box.style.right = share < 0.5 ? "auto" : `calc(${100 * (1 - share)}% + 14px)`;
  };
  const hide = () => {
    at = -1;
    box.hidden = true;
    guide.setAttribute("visibility", "hidden");
  };
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const pixel = ((event.clientX - frame.left) / frame.width) * area.width;
    let best = 0;
    xs.forEach((x, index) => {
      if (Math.abs(xScale.at(x) - pixel) < Math.abs(xScale.at(xs[best]) - pixel)) best = index;
    });
    if (best !== at) show(best);
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -xs.length, End: xs.length }[event.key];
    if (step) {
      event.preventDefault();
      show(at < 0 ? (step > 0 ? 0 : xs.length - 1) : at + step);
    }
    if (event.key === "Escape") hide();
  });
};

// ---- What pages build with

// A figure that draws itself and draws anew when its width or its spec changes.
const chartFigure = (spec) => {
  const figure = element("div", { class: "plot" });
  let shown = spec, width = 0;
  const paint = () => {
    const focused = figure.contains(document.activeElement);
    (shown.rows ? drawBars : drawChart)(figure, shown);
    if (focused) figure.querySelector("svg.chart").focus({ preventScroll: true });
  };
  new ResizeObserver(() => requestAnimationFrame(() => {
    if (figure.clientWidth === width) return;
    width = figure.clientWidth;
    paint();
  })).observe(figure);
  paint();
  // While somebody reads a value the drawing holds still.
  return {
    figure,
    draw: (next) => {
      shown = next;
      if (!figure.querySelector(".readout:not([hidden])")) paint();
    }
  };
};
// columns: [[head, (row) => cell]…]; a cell is text or a node. The first one names the row.
const table = (caption, rows, columns) => {
  const cells = (row) => columns.map(([, cell], index) => (index ? element("td", null, cell(row) ?? "–")
      : element("th", { scope: "row" }, cell(row) ?? "–")));
  const heads = columns.map(([head]) => element("th", { scope: "col" }, head));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
      element("table", null, element("caption", null, caption), element("thead", null, element("tr", null, heads)),
          element("tbody", null, rows.map((row) => element("tr", null, cells(row))))));
};
const folded = (summary, ...children) => element("details", null, element("summary", null, summary), ...children);

// Horizontal bars for a few values: rows {name, style, value, total, text}; with totals each bar lies in a grey one.
const drawBars = (figure, { id, label, rows }) => {
  const width = Math.max(260, Math.floor(figure.clientWidth || 760)), pitch = 30;
  const names = Math.min(width * 0.42, 14 + 7 * Math.max(...rows.map((row) => row.name.length), 4));
  const texts = 10 + 6.8 * Math.max(...rows.map((row) => row.text.length), 4);
  const full = (row) => row.total ?? row.value;
  const unit = Math.max(30, width - names - texts) / Math.max(...rows.map(full), 1e-9);
  const bar = (value, y, kind) =>
      shape("rect", { x: names, y, width: unit * value, height: 19, rx: 3, class: `bar ${kind}` });
  const drawn = rows.map((row, index) => {
    const y = index * pitch + 6, name = cut(row.name, Math.floor((names - 8) / 6.8));
    return [
      shape("text", { x: names - 10, y: y + 14, class: "axis end" }, name),
      row.total === undefined ? null : bar(row.total, y, "free"),
      bar(row.value, y, `s${row.style % kStyles}`),
      shape("text", { x: names + unit * full(row) + 8, y: y + 14, class: "tick" }, row.text),
    ];
  });
  figure.replaceChildren(shape("svg", { viewBox: `0 0 ${width} ${rows.length * pitch + 8}`, class: "chart", role: "img",
    "aria-label": `${label}: ${rows.map((row) => `${row.name} ${row.text}`).join(", ")}`,
    "data-chart": id, "data-series": rows.length }, drawn));
};
