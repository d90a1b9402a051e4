// Hot keys, and how evenly the key groups are filled.

import { get } from "/static/api.js";
import { meter } from "/static/charts.js";
import { badge, fill, h, panel, table } from "/static/dom.js";
import { percent, plain, whole } from "/static/format.js";

export async function keys({ path }) {
  const hot = h("div", {}), skew = h("div", {});
  const update = async () => {
    const data = await get(`${path}/keys`);
    fill(hot, table([
      { title: "Key", kind: "title", wide: true, cell: (row) => plain(row.key) }, { title: "Step", cell: (row) => row.step }, { title: "Elements (estimate)", number: true, cell: (row) => whole(row.count) },
      { title: "Share", number: true, cell: (row) => [percent(row.share), " ", meter(row.share)] },
    ], data.hot, { empty: "No key stands out yet.", label: "Hot keys" }));
    fill(skew, data.skew.length ? data.skew.map((each) => {
      const most = Math.max(...each.groups, 1);
      const uneven = each.fullest > 3 ? "warn" : "ok";
      return h("div", {}, h("p", {}, h("b", {}, each.step), " ", badge(uneven, `the fullest group has ${each.fullest.toFixed(1)} × the mean`)),
        h("div", { class: "legend" }, each.groups.map((count, group) => h("span", { title: `${whole(count)} elements` }, `${group} `, meter(count / most)))));
    }) : h("p", { class: "hint" }, "Not measured yet."));
  };
  await update();
  return { element: h("div", {}, panel("Hot keys", "Over the last batches; the counts are estimates of a sketch.", hot), panel("Key groups", "Keys are hashed to key groups, and groups are assigned to tasks: a batch waits for the fullest group.", skew)), update };
}
