// The job's identity, its sources and sinks, and its runs.

import { get } from "/static/api.js";
import { fill, h, panel, table } from "/static/dom.js";
import { moment, whole } from "/static/format.js";

export async function lineage({ path }) {
  const facts = h("div", {}), runs = h("div", {});
  const update = async () => {
    const data = await get(`${path}/lineage`);
    const lines = (names) => (names.length ? names.map((name) => h("div", {}, name)) : "–");
    fill(facts, h("dl", { class: "facts" },
      h("dt", {}, "Reads"), h("dd", {}, lines(data.sources)), h("dt", {}, "Writes"), h("dd", {}, lines(data.sinks)),
      h("dt", {}, "Lineage"), h("dd", { class: "mono" }, data.lineage), h("dt", {}, "Definition"), h("dd", { class: "mono" }, data.fingerprint),
      h("dt", {}, "Key groups"), h("dd", {}, whole(data.key_groups)), h("dt", {}, "Folder"), h("dd", { class: "mono" }, data.folder)));
    fill(runs, table([
      { title: "When", cell: (row) => moment(row.at) }, { title: "Run", number: true, cell: (row) => row.run }, { title: "What", cell: (row) => row.kind }, { title: "", wide: true, cell: (row) => row.text },
    ], data.runs, { empty: "No runs recorded.", label: "Runs" }));
  };
  await update();
  return { element: h("div", {}, panel("Lineage", "The identity in its sinks' ledgers: a batch of another lineage never counts as one of this job.", facts), panel("Runs", "Starts and ends, newest first.", runs)), update };
}
