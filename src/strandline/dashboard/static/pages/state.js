// The state of each keyed step.

import { get } from "/static/api.js";
import { spark } from "/static/charts.js";
import { fill, h, panel, table } from "/static/dom.js";
import { bytes, moment, whole } from "/static/format.js";

export async function state({ path }) {
  const body = h("div", {});
  const update = async () => {
    const data = await get(`${path}/state`);
    fill(body, table([
      { title: "Step", kind: "title", cell: (row) => row.name }, { title: "Windows", number: true, cell: (row) => whole(row.rows) }, { title: "Bytes", number: true, cell: (row) => (row.bytes === null ? "not measured" : bytes(row.bytes)) },
      { title: "Lately", number: true, cell: (row) => spark(row.series, "windows lately") }, { title: "Elements in", number: true, cell: (row) => whole(row.read) }, { title: "Late", number: true, cell: (row) => whole(row.late) },
      { title: "Watermark", number: true, cell: (row) => moment(row.watermark) }, { title: "Output watermark", number: true, cell: (row) => moment(row.output_watermark) },
    ], data.steps, { empty: "This job has no state, or no batch yet.", label: "State by step" }));
  };
  await update();
  return { element: panel("State by step", "Windows, or the slices that they share, and their size; elements are those of the last batches.", body), update };
}
