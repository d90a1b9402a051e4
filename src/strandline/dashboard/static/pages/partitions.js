// The partitions of the sources: how far each is, which one holds the watermark back, which have fallen silent.

import { get } from "/static/api.js";
import { badge, fill, h, panel, table } from "/static/dom.js";
import { ago, moment, seconds, whole } from "/static/words.js";

export async function partitions({ path }) {
  const body = h("div", {});
  const verdict = (each) => {
    if (each.finished) return badge("off", "ended");
    if (each.idle) return badge("off", "idle");
    return each.holds ? badge("warn", "holds the watermark") : badge("ok", "live");
  };
  const update = async () => {
    const told = await get(`${path}/partitions`);
    const idle = told.partitions.filter((each) => each.idle && !each.finished).length;
    fill(body, h("p", { class: "hint" }, `${whole(told.count)} partitions, ${idle} of them idle. The watermark is that of the slowest one that is not.`, told.count > told.partitions.length ? ` The first ${told.partitions.length} to look at are shown.` : ""),
      table([
        { title: "Partition", kind: "title", cell: (each) => each.name }, { title: "State", cell: verdict },
        { title: "Watermark", number: true, cell: (each) => moment(each.watermark) }, { title: "Behind", number: true, cell: (each) => (each.watermark === null ? "–" : seconds((told.now - each.watermark) / 1000)) },
        { title: "Highest event time", number: true, cell: (each) => moment(each.event_time) }, { title: "Last heard", number: true, cell: (each) => ago(each.heard, told.now) },
        { title: "Records left", number: true, cell: (each) => whole(each.lag_records) }, { title: "Lag", number: true, cell: (each) => seconds(each.lag_seconds) },
      ], told.partitions, { empty: "No partition was heard yet.", label: "Partitions" }));
  };
  await update();
  return { element: panel("Partitions", "", body), update };
}
