// What each keyed step keeps.

import { get } from "/static/api.js";
import { spark } from "/static/charts.js";
import { fill, h, panel, table } from "/static/dom.js";
import { bytes, moment, whole } from "/static/words.js";

export async function state({ path }) {
  const body = h("div", {});
  const update = async () => {
    const told = await get(`${path}/state`);
    fill(body, table([
      { title: "Step", kind: "title", cell: (row) => row.name }, { title: "Windows kept", number: true, cell: (row) => whole(row.rows) }, { title: "Bytes", number: true, cell: (row) => (row.bytes === null ? "not measured" : bytes(row.bytes)) },
      { title: "Lately", number: true, cell: (row) => spark(row.series, "windows kept lately") }, { title: "Elements in", number: true, cell: (row) => whole(row.read) }, { title: "Late", number: true, cell: (row) => whole(row.late) },
      { title: "Watermark", number: true, cell: (row) => moment(row.watermark) }, { title: "Its output's", number: true, cell: (row) => moment(row.output_watermark) },
    ], told.steps, { empty: "This job keeps nothing, or has not come to its first batch.", label: "State by step" }));
  };
  await update();
  return { element: panel("State by step", "Windows, or strips that they share, and what they take; elements are those of the last batches.", body), update };
}
