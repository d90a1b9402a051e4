// The job's graph; a node's bar is the share of a batch's time that its kind takes.

import { get } from "/static/api.js";
import { shares } from "/static/charts.js";
import { fill, h, panel, svg } from "/static/dom.js";
import { percent, seconds } from "/static/format.js";

const WIDTH = 190, HEIGHT = 64, ACROSS = 70, DOWN = 22;
const SPENT = { source: "read and prepare", step: "shuffle, state and step", sink: "deliver and commit" };

export async function stages({ path }) {
  const picture = h("div", { class: "graph" }), times = h("div", {}), busy = h("div", {}), plan = h("pre", {});
  const update = async () => {
    const data = await get(`${path}/stages`);
    fill(picture, data.nodes.length ? drawGraph(data) : h("p", { class: "hint" }, "Its definition was not stored."));
    fill(times, data.stages.length ? [shares(data.stages, (part) => `${seconds(part.seconds)}, ${percent(part.share)}`), h("p", { class: "hint" }, data.limited_by)] : h("p", { class: "hint" }, "Not measured yet."));
    const spent = Object.entries(data.busy), total = spent.reduce((sum, [, value]) => sum + value, 0);
    fill(busy, spent.length && total ? shares(spent.map(([name, value]) => ({ name, seconds: value, share: value / total })), (part) => seconds(part.seconds)) : h("p", { class: "hint" }, "Not measured yet."));
    fill(plan, data.plan || "Not stored.");
  };
  await update();
  return {
    element: h("div", {}, panel("Stages", "A bar is the share of a batch's time that all sources, all steps or all sinks take together.", picture),
      h("div", { class: "two" }, panel("Time of a batch", "Average of the last batches.", times), panel("Work of all tasks", "Seconds of the last batches, over all cores.", busy)),
      panel("Plan", "As strandline explain prints it.", plan)),
    update,
  };
}

function drawGraph({ nodes, edges }) {
  const columns = Math.max(...nodes.map((node) => node.column)) + 1;
  const rows = Array.from({ length: columns }, (_, column) => nodes.filter((node) => node.column === column));
  const tall = Math.max(...rows.map((row) => row.length)) * (HEIGHT + DOWN);
  const places = new Map();
  rows.forEach((row, column) => row.forEach((node, place) => {
    const top = (tall - row.length * (HEIGHT + DOWN)) / 2;
    places.set(node.id, { x: column * (WIDTH + ACROSS) + 4, y: top + place * (HEIGHT + DOWN) + DOWN / 2 });
  }));
  const width = columns * (WIDTH + ACROSS) - ACROSS + 8;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": "Stages" });
  for (const [from, to] of edges) {
    const a = places.get(from), b = places.get(to);
    if (!a || !b) continue;
    const x1 = a.x + WIDTH, y1 = a.y + HEIGHT / 2, x2 = b.x, y2 = b.y + HEIGHT / 2, middle = (x1 + x2) / 2;
    picture.append(svg("path", { d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` }));
  }
  for (const node of nodes) {
    const { x, y } = places.get(node.id), share = node.share ?? 0;
    picture.append(
      svg("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 7 }),
      svg("rect", { class: `heat ${share > 0.8 ? "bad" : share > 0.6 ? "warn" : ""}`, x: x + 10, y: y + HEIGHT - 11, width: Math.max((WIDTH - 20) * share, node.share === null ? 0 : 2), height: 4, rx: 2 }),
      svg("text", { x: x + 10, y: y + 20 }, short(node.label, 22)),
      svg("text", { class: "soft", x: x + 10, y: y + 36 }, short(node.detail, 28)),
      svg("text", { class: "soft", x: x + WIDTH - 10, y: y + 20, "text-anchor": "end" }, node.share === null ? "" : percent(Math.round(share * 100) / 100)),
      svg("title", {}, `${node.label} ${node.detail}: ${SPENT[node.kind]}`));
  }
  picture.style.maxWidth = `${width}px`;
  return picture;
}

function short(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
