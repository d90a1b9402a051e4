// Event time against processing time, as in the Dataflow papers, for this job.

import { get } from "/static/api.js";
import { Chart, colour } from "/static/charts.js";
import { fill, h, panel } from "/static/dom.js";
import { clock, moment, seconds } from "/static/format.js";

const SPANS = [[300, "5 min"], [900, "15 min"], [3600, "1 hour"], [6 * 3600, "6 hours"], [86400, "1 day"]];

export async function time({ path }) {
  let span = 900, last = null;
  const hhmmss = (_, ticks) => ticks.map((tick) => (tick === null ? "" : clock(tick * 1000)));
  const skew = { draw: [(plot) => drawSkew(plot, last)] };
  const picture = new Chart([
    { label: "ideal: processed as it happens", colour: "off", dash: [5, 5], format: (value) => clock(value * 1000) },
    { label: "watermark: complete up to here", colour: "accent", format: (value) => clock(value * 1000), points: false },
  ], { height: 420, hooks: skew, along: "event time", axes: [{ label: "event time", values: hhmmss, size: 32, labelSize: 22, labelFont: "12px system-ui, sans-serif", space: 80 }, { label: "processing time", size: 76, values: hhmmss, labelSize: 20, labelFont: "12px system-ui, sans-serif" }], scales: { x: { time: false }, y: { time: false } } });
  const lag = new Chart([{ label: "watermark behind the clock", colour: "accent", fill: true }], { height: 160, format: seconds });
  const summary = h("p", { class: "answer" }), holder = h("p", { class: "hint" });
  const choose = h("select", { "aria-label": "How far back", change: (event) => { span = Number(event.target.value); update(); } },
    SPANS.map(([length, name]) => h("option", { value: length, selected: length === span }, name)));

  const update = async () => {
    const data = await get(`${path}/times`, { span, points: 800 });
    const seen = data.clock.map((at, place) => [data.watermark[place], at]).filter(([mark]) => mark !== null).map(([mark, at]) => [mark / 1000, at / 1000]);
    last = seen.length ? { mark: seen.at(-1)[0], clock: seen.at(-1)[1] } : null;
    if (!last) {
      fill(summary, data.ended ? "The stream has ended: every window is closed." : "There is no watermark yet.");
    } else {
      // The ideal line continues to the current clock, where the watermark is not yet.
      const rows = [...seen.map(([mark, at]) => [mark, mark, at]), [last.clock, last.clock, null]].sort((a, b) => a[0] - b[0]);
      picture.update([rows.map((row) => row[0]), rows.map((row) => row[1]), rows.map((row) => row[2])]);
      lag.update([seen.map((row) => row[1]), seen.map(([mark, at]) => at - mark)]);
      fill(summary, `Complete up to ${moment(last.mark * 1000)} `, h("span", { class: "soft" }, `at processing time ${moment(last.clock * 1000)}: ${seconds(last.clock - last.mark)} behind.`));
    }
    fill(holder, data.held_by ? `Partition ${data.held_by} holds it back. ` : "", data.idle.length ? `Idle partitions: ${data.idle.join(", ")}.` : "");
  };
  await update();
  const element = h("div", {},
    panel("Event time and processing time", "If every event were processed as it happens, the watermark would follow the ideal line. The horizontal distance between the two is how long the job waits for late events.",
      h("div", { class: "tools" }, choose), summary, holder, picture.element),
    panel("Watermark behind the clock", "", lag.element));
  return { element, update, shown: () => {}, close: () => { picture.close(); lag.close(); } };
}

// The distance between the watermark and the ideal at this moment, along event time.
function drawSkew(plot, last) {
  if (!last) return;
  const left = plot.valToPos(last.mark, "x", true), right = plot.valToPos(last.clock, "x", true), y = plot.valToPos(last.clock, "y", true);
  const pen = plot.ctx;
  pen.save();
  pen.beginPath();
  pen.rect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
  pen.clip();
  pen.strokeStyle = colour("late");
  pen.fillStyle = colour("late");
  pen.lineWidth = 2 * devicePixelRatio;
  pen.beginPath();
  pen.moveTo(left, y);
  pen.lineTo(right, y);
  pen.stroke();
  pen.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  pen.textAlign = "right";
  pen.fillText(`${seconds(last.clock - last.mark)} behind`, right - 2 * devicePixelRatio, y - 8 * devicePixelRatio);
  pen.restore();
}
