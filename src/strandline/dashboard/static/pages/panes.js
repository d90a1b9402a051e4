// The panes of a key and a window in order: early, on time and late, and retractions.

import { get } from "/static/api.js";
import { fill, h, panel } from "/static/dom.js";
import { clock, moment, plain, whole } from "/static/format.js";

const TIMINGS = { early: "early", on_time: "on time", late: "late", element: "element" };

export async function panes({ path }) {
  let key = "", windowStart, pinned = false;
  const search = h("input", { type: "search", placeholder: "Search keys", "aria-label": "Search keys", input: () => update() });
  const keys = h("div", { class: "list" }), windows = h("div", { class: "list" }), story = h("div", {});

  const update = async () => {
    const found = await get(`${path}/panes`, { search: search.value });
    if (!pinned && found.keys.length && !found.keys.some((each) => each.key === key)) key = found.keys[0].key;
    fill(keys, found.keys.length ? found.keys.map((each) => pick(each.key === key, [h("span", {}, plain(each.key)), h("span", { class: "soft" }, whole(each.panes))], () => { key = each.key; pinned = true; windowStart = undefined; update(); }))
      : h("p", { class: "hint" }, search.value ? "No recorded key contains this text." : "No panes yet, or this job records no keys."));
    if (!key) { fill(windows); fill(story, h("p", { class: "hint" }, "Choose a key.")); return; }
    const ofKey = await get(`${path}/panes`, { key });
    if (windowStart === undefined && ofKey.windows.length) windowStart = (ofKey.windows.find((each) => each.late) ?? ofKey.windows[0]).start;
    fill(windows, ofKey.windows.map((each) => pick(each.start === windowStart,
      [h("span", {}, span(each)), h("span", { class: "soft" }, [whole(each.panes), each.late ? `${each.late} late` : "", each.retractions ? `${each.retractions} retracted` : ""].filter(Boolean).join(" · "))],
      () => { windowStart = each.start; update(); })));
    drawStory((await get(`${path}/panes`, { key, start: windowStart ?? undefined })).panes);
  };

  const drawStory = (panesOfWindow) => {
    if (!panesOfWindow.length) { fill(story, h("p", { class: "hint" }, "Choose a window.")); return; }
    const window_ = panesOfWindow[0];
    const sum = (word) => panesOfWindow.filter((pane) => pane.timing === word && !pane.retraction).length;
    fill(story, h("h3", {}, `${plain(key)}, ${span(window_)}`),
      h("p", { class: "hint" }, `${sum("early")} early, ${sum("on_time")} on time, ${sum("late")} late; ${panesOfWindow.filter((pane) => pane.retraction).length} retracted.`),
      h("ol", { class: "story" }, panesOfWindow.map((pane) => h("li", { class: `${pane.timing} ${pane.retraction ? "retraction" : ""}` },
        h("div", {}, h("span", { class: "timing" }, pane.retraction ? "retracts" : TIMINGS[pane.timing] ?? pane.timing), ` · pane ${pane.index}${pane.is_last ? ", the last" : ""}`, h("span", { class: "soft" }, ` · batch ${pane.batch}, ${clock(pane.at)}`)),
        h("div", { class: "values" }, plain(pane.said))))));
  };

  await update();
  const element = h("div", {}, panel("Panes of a key", "Recent panes of the keys that this job records. The sink has the panes of every key.",
    h("div", { class: "pick" },
      h("div", {}, h("h3", {}, "Key"), search, keys),
      h("div", {}, h("h3", {}, "Window"), windows),
      h("div", {}, story))));
  return { element, update };
}

function pick(chosen, children, act) {
  return h("button", { type: "button", "aria-pressed": String(chosen), click: act }, children);
}

function span({ start, until }) {
  return start === null ? "all time" : `${moment(start)} – ${clock(until)}`;
}
