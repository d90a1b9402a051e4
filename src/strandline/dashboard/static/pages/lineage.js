// Whose checkpoint it is, where its rows come from and go to, and how often it lived.

import { get } from "/static/api.js";
import { fill, h, panel, table } from "/static/dom.js";
import { moment, whole } from "/static/words.js";

export async function lineage({ path }) {
  const facts = h("div", {}), runs = h("div", {});
  const update = async () => {
    const told = await get(`${path}/lineage`);
    const lines = (names) => (names.length ? names.map((name) => h("div", {}, name)) : "–");
    fill(facts, h("dl", { class: "facts" },
      h("dt", {}, "Reads"), h("dd", {}, lines(told.sources)), h("dt", {}, "Writes"), h("dd", {}, lines(told.sinks)),
      h("dt", {}, "Lineage"), h("dd", { class: "mono" }, told.lineage), h("dt", {}, "Definition"), h("dd", { class: "mono" }, told.fingerprint),
      h("dt", {}, "Key groups"), h("dd", {}, whole(told.key_groups)), h("dt", {}, "Folder"), h("dd", { class: "mono" }, told.folder)));
    fill(runs, table([
      { title: "When", cell: (row) => moment(row.at) }, { title: "Run", number: true, cell: (row) => row.run }, { title: "What", cell: (row) => row.kind }, { title: "", wide: true, cell: (row) => row.text },
    ], told.runs, { empty: "No start was written down.", label: "Runs" }));
  };
  await update();
  return { element: h("div", {}, panel("Lineage", "The name that its entries in sinks carry: a batch of another lineage is never taken for one of this job.", facts), panel("Lives", "Starts and ends, newest first.", runs)), update };
}
