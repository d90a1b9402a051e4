// Line charts with uPlot, and small SVG pictures. Colours come from the style sheet, so themes need no code here.

import uPlot from "/static/vendor/uPlot.js";
import { h, svg } from "/static/dom.js";
import { clock } from "/static/format.js";

const open = new Set();

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Redraw every chart after a theme change.
export function repaint() {
  for (const chart of open) chart.rebuild();
}

// Axis ticks as clock times; with the date where it changes.
export function hours(_, ticks) {
  let day = null;
  const apart = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
  return ticks.map((tick) => {
    if (tick === null) return "";
    const text = apart >= 60 ? clock(tick * 1000).slice(0, 5) : clock(tick * 1000), date = new Date(tick * 1000).toDateString();
    const turned = day !== null && date !== day;
    day = date;
    return turned ? `${text}\n${date.slice(4, 10)}` : text;
  });
}

// lines: [{ label, colour: name of a colour, format: number → text, dash?, fill? }]; data: [seconds, …values]
export class Chart {
  constructor(lines, { height = 220, format, scales, hooks, axes, along = "at" } = {}) {
    this.lines = lines;
    this.options = { height, format, scales, hooks, axes, along };
    this.element = h("div", { class: "chart" });
    this.data = [[], ...lines.map(() => [])];
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.element);
    open.add(this);
  }

  update(data) {
    this.data = data;
    if (this.plot) this.plot.setData(data);
    else this.rebuild();
  }

  rebuild() {
    if (!this.element.clientWidth) return;
    this.plot?.destroy();
    this.plot = new uPlot(this.settings(), this.data, this.element);
  }

  settings() {
    const { height, format, scales, hooks, axes } = this.options;
    const axis = {
      stroke: colour("soft"), grid: { stroke: colour("faint"), width: 1 }, ticks: { stroke: colour("line"), width: 1, size: 4 },
      font: "11px system-ui, sans-serif",
    };
    return {
      width: this.element.clientWidth, height, scales, hooks,
      cursor: { points: { size: 6 }, drag: { x: true, y: false } },
      axes: axes ? axes.map((each) => ({ ...axis, ...each })) : [{ ...axis, values: hours, size: 32 }, { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : format(tick))) }],
      series: [
        { label: this.options.along, value: (_, value) => (value === null ? "–" : clock(value * 1000)) },
        ...this.lines.map((line) => ({
          label: line.label, stroke: colour(line.colour), width: 1.6, dash: line.dash, spanGaps: false,
          fill: line.fill ? `${colour(line.colour)}22` : undefined, points: { show: line.points ?? false, size: 4 },
          value: (_, value) => (value === null || value === undefined ? "–" : (line.format ?? format)(value)),
        })),
      ],
    };
  }

  resize() {
    const width = this.element.clientWidth;
    if (!width) return;
    if (this.plot) this.plot.setSize({ width, height: this.options.height });
    else this.rebuild();
  }

  close() {
    open.delete(this);
    this.observer.disconnect();
    this.plot?.destroy();
  }
}

// A sparkline without axes.
export function spark(values, label) {
  const known = values.filter((value) => value !== null);
  const picture = svg("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": label });
  if (known.length < 2) return picture;
  const most = Math.max(...known, 0), least = Math.min(...known, 0), span = most - least || 1;
  const x = (place) => (place / (values.length - 1)) * 100;
  const y = (value) => 28 - ((value - least) / span) * 26;
  let line = "", pen = false;
  values.forEach((value, place) => {
    if (value === null) { pen = false; return; }
    line += `${pen ? "L" : "M"}${x(place).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = true;
  });
  const whole = known.length === values.length;
  if (whole) picture.append(svg("path", { class: "area", d: `${line}L100 30L0 30Z` }));
  picture.append(svg("path", { class: "line", d: line }));
  return picture;
}

// A bar whose width is a share.
export function meter(share) {
  const bar = h("span", {});
  bar.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("span", { class: "meter" }, bar);
}

// Parts of a whole side by side, with a legend. The largest part has the accent colour, unless parts have colours.
export function shares(parts, format) {
  const bar = h("div", { class: "share" });
  const legend = h("div", { class: "legend" });
  const most = Math.max(...parts.map((part) => part.share));
  parts.forEach((part, number) => {
    const kind = part.colour ? `fill-${part.colour}` : part.share === most ? "fill-accent" : `tint${number % 2}`;
    const piece = h("span", { class: kind, title: `${part.name}: ${format(part)}` });
    piece.style.width = `${part.share * 100}%`;
    bar.append(piece);
    legend.append(h("span", {}, h("span", { class: `swatch ${kind}` }), part.name, " ", h("b", {}, format(part))));
  });
  return h("div", {}, bar, legend);
}
