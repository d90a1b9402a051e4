// How late elements are, and what a longer watermark delay would gain.

import { get } from "/static/api.js";
import { fill, h, panel } from "/static/dom.js";
import { percent, seconds, whole } from "/static/format.js";

export async function lateness({ path }) {
  let data = null, wait = null;
  const picture = h("div", {}), answer = h("p", { class: "answer", role: "status" }), about = h("p", { class: "hint" }), answers = h("div", {});
  const slider = h("input", { type: "range", min: "0", max: "1000", value: "0", "aria-label": "How long to wait", input: () => { wait = toWait(Number(slider.value)); draw(); } });

  // The slider is logarithmic: a second more matters at one second, not at an hour.
  const most = () => Math.max(data.bars.at(-1)?.upper ?? 1000, 1000);
  const toWait = (place) => (place === 0 ? 0 : 10 ** ((place / 1000) * Math.log10(most())));
  const toPlace = (ms) => (ms <= 1 ? 0 : (Math.log10(ms) / Math.log10(most())) * 1000);
  const complete = (ms) => data.bars.filter((bar) => bar.upper <= ms + 1e-6).at(-1)?.complete ?? 0;

  const draw = () => {
    if (!data.measured) {
      fill(picture);
      fill(answer, "Lateness is not measured yet.");
      fill(about, "It is shown once elements with an event time have arrived.");
      return;
    }
    const bars = data.bars, tallest = Math.max(...bars.map((bar) => bar.count));
    const columns = bars.map((bar) => {
      const column = h("span", { class: bar.upper <= wait + 1e-6 ? "" : "waits", title: `${seconds(bar.lower / 1000)} to ${seconds(bar.upper / 1000)}: ${whole(bar.count)}` });
      column.style.height = `${Math.max((bar.count / tallest) * 100, 0.8)}%`;
      return column;
    });
    const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => bars[Math.round(share * (bars.length - 1))]);
    fill(picture, h("div", { class: "bars", role: "img", "aria-label": "How far behind elements were" }, columns),
      h("div", { class: "marks" }, marks.map((bar) => h("span", {}, seconds(bar.lower / 1000)))));
    fill(answer, `If you waited ${seconds(wait / 1000)}, ${percent(complete(wait))} would be complete.`);
    fill(about, `Of ${whole(data.measured)} elements of the last batches, by how far they were behind the highest event time seen. ${whole(data.late)} of ${whole(data.read)} were too late for their windows (${percent(data.read ? data.late / data.read : 0)}).`);
    fill(answers, h("div", { class: "tools" }, h("span", { class: "soft" }, "Complete:"), [0.95, 0.99, 0.999, 1].map((share) => {
      const bar = bars.find((each) => each.complete >= share - 1e-9);
      return bar ? h("button", { type: "button", click: () => { wait = bar.upper; slider.value = toPlace(wait); draw(); } }, `${percent(share)} after ${seconds(bar.upper / 1000)}`) : null;
    })));
  };

  const update = async () => {
    data = await get(`${path}/lateness`);
    if (wait === null && data.measured) {
      wait = (data.bars.find((bar) => bar.complete >= 0.99) ?? data.bars.at(-1)).upper;
    }
    if (data.measured) slider.value = toPlace(wait);
    draw();
  };
  await update();
  return { element: h("div", {}, panel("How late elements are", "Move the slider: which share would a watermark with this delay have waited for?", answer, slider, answers, picture, about)), update };
}
