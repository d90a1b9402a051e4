// The events of a job, newest first.

import { get } from "/static/api.js";
import { badge, fill, h, panel, table } from "/static/dom.js";
import { moment } from "/static/format.js";

const GRAVE = { failed: "bad", alarm: "warn", waiting: "warn", firing: "bad", dead: "bad", "all clear": "ok", started: "ok", running: "ok", complete: "off", stopped: "off" };

export async function events({ path }) {
  const body = h("div", {});
  const search = h("input", { type: "search", placeholder: "Search events", "aria-label": "Search events", input: () => draw() });
  let data = { events: [] };
  const draw = () => {
    const text = search.value.toLowerCase();
    fill(body, table([
      { title: "When", kind: "nowrap", cell: (row) => moment(row.at) }, { title: "What", cell: (row) => badge(GRAVE[row.kind] ?? "off", row.kind) }, { title: "Run", number: true, cell: (row) => row.run }, { title: "", wide: true, cell: (row) => row.text },
    ], data.events.filter((row) => `${row.kind} ${row.text}`.toLowerCase().includes(text)), { empty: "No events yet.", label: "Events" }));
  };
  const update = async () => { data = await get(`${path}/events`, { limit: 500 }); draw(); };
  await update();
  return { element: panel("Events", "", h("div", { class: "tools" }, search), body), update };
}
