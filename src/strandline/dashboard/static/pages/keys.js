// The keys that get more than others, and how evenly the key groups are filled.

import { get } from "/static/api.js";
import { meter } from "/static/charts.js";
import { badge, fill, h, panel, table } from "/static/dom.js";
import { percent, plain, whole } from "/static/words.js";

export async function keys({ path }) {
  const hot = h("div", {}), skew = h("div", {});
  const update = async () => {
    const told = await get(`${path}/keys`);
    fill(hot, table([
      { title: "Key", kind: "title", wide: true, cell: (row) => plain(row.key) }, { title: "Step", cell: (row) => row.step }, { title: "Elements, about", number: true, cell: (row) => whole(row.count) },
      { title: "Share", number: true, cell: (row) => [percent(row.share), " ", meter(row.share)] },
    ], told.hot, { empty: "No key stands out yet.", label: "Hot keys" }));
    fill(skew, told.skew.length ? told.skew.map((each) => {
      const most = Math.max(...each.groups, 1);
      const uneven = each.fullest > 3 ? "warn" : "ok";
      return h("div", {}, h("p", {}, h("b", {}, each.step), " ", badge(uneven, `the fullest has ${each.fullest.toFixed(1)} × the mean`)),
        h("div", { class: "legend" }, each.groups.map((count, group) => h("span", { title: `${whole(count)} elements` }, `${group} `, meter(count / most)))));
    }) : h("p", { class: "hint" }, "Not measured yet."));
  };
  await update();
  return { element: h("div", {}, panel("Hot keys", "Over the last batches; counts are from a sketch, so they are about right.", hot), panel("Key groups", "Keys are spread over key groups, and groups over tasks: one that is much fuller than the others makes a batch wait.", skew)), update };
}
