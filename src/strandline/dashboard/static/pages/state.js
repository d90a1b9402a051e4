// The state of each keyed step.

import { get } from "/static/api.js";
import { spark } from "/static/charts.js";
import { fill, h, panel, table } from "/static/dom.js";
import { bytes, moment, percent, whole } from "/static/format.js";

export async function state({ path }) {
  const body = h("div", {}), sides = h("div", {});
  const update = async () => {
    const data = await get(`${path}/state`);
    fill(body, table([
      { title: "Step", kind: "title", cell: (row) => row.name }, { title: "Windows", number: true, cell: (row) => whole(row.rows) }, { title: "Bytes", number: true, cell: (row) => (row.bytes === null ? "not measured" : bytes(row.bytes)) },
      { title: "Lately", number: true, cell: (row) => spark(row.series, "windows lately") }, { title: "Elements in", number: true, cell: (row) => whole(row.read) }, { title: "Late", number: true, cell: (row) => whole(row.late) },
      { title: "Watermark", number: true, cell: (row) => moment(row.watermark) }, { title: "Output watermark", number: true, cell: (row) => moment(row.output_watermark) },
    ], data.steps, { empty: "This job has no state, or no batch yet.", label: "State by step" }));
    fill(sides, data.inputs.length ? joins(data.inputs) : "");
  };
  await update();
  return { element: h("div", {}, panel("State by step", "Windows, or the slices that they share, and their size; elements are those of the last batches.", body), sides), update };
}

// A join that does not emit unmatched rows does not know which rows are unmatched.
function joins(inputs) {
  const known = (value, shown) => (value === null ? "not tracked" : shown(value));
  return panel("Sides of joins", "Rows of each side in the last batches, and how many wait in the state for a partner. A join tracks unmatched rows on the sides whose unmatched rows it emits.", table([
    { title: "Step", kind: "title", cell: (row) => row.step }, { title: "Side", cell: (row) => row.role }, { title: "Rows in", number: true, cell: (row) => whole(row.accepted) },
    { title: "Late", number: true, cell: (row) => whole(row.late) }, { title: "Stored", number: true, cell: (row) => whole(row.stored) }, { title: "Ended", number: true, cell: (row) => whole(row.ended) },
    { title: "Unmatched", number: true, cell: (row) => known(row.unmatched, whole) }, { title: "Match rate", number: true, cell: (row) => (row.unmatched === null ? "not tracked" : percent(row.match_rate)) },
    { title: "Oldest unmatched", number: true, cell: (row) => (row.unmatched === null ? "not tracked" : moment(row.oldest_unmatched)) },
  ], inputs, { label: "Sides of joins" }));
}
