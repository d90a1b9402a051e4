// The partitions of the sources: their progress, which one holds the watermark back, and which are idle.

import { get } from "/static/api.js";
import { badge, fill, h, panel, table } from "/static/dom.js";
import { ago, moment, seconds, whole } from "/static/format.js";

export async function partitions({ path }) {
  const body = h("div", {});
  const verdict = (each) => {
    if (each.finished) return badge("off", "ended");
    if (each.idle) return badge("off", "idle");
    return each.holds ? badge("warn", "holds the watermark") : badge("ok", "live");
  };
  const update = async () => {
    const data = await get(`${path}/partitions`);
    const idle = data.partitions.filter((each) => each.idle && !each.finished).length;
    fill(body, h("p", { class: "hint" }, `${whole(data.count)} partitions, ${idle} of them idle. The watermark is that of the slowest partition that is not idle.`, data.count > data.partitions.length ? ` Only ${data.partitions.length} are shown.` : ""),
      table([
        { title: "Partition", kind: "title", cell: (each) => each.name }, { title: "State", cell: verdict },
        { title: "Watermark", number: true, cell: (each) => moment(each.watermark) }, { title: "Behind", number: true, cell: (each) => (each.watermark === null ? "–" : seconds((data.now - each.watermark) / 1000)) },
        { title: "Highest event time", number: true, cell: (each) => moment(each.event_time) }, { title: "Last record", number: true, cell: (each) => ago(each.heard, data.now) },
        { title: "Records left", number: true, cell: (each) => whole(each.lag_records) }, { title: "Lag", number: true, cell: (each) => seconds(each.lag_seconds) },
      ], data.partitions, { empty: "No partition has sent records yet.", label: "Partitions" }));
  };
  await update();
  return { element: panel("Partitions", "", body), update };
}
