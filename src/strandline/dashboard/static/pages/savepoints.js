// The savepoints of a job.

import { get } from "/static/api.js";
import { fill, h, panel, table } from "/static/dom.js";
import { moment } from "/static/words.js";

export async function savepoints({ path }) {
  const body = h("div", {});
  const update = async () => {
    const told = await get(`${path}/savepoints`);
    fill(body, told.savepoints.length ? table([
      { title: "Savepoint", kind: "title", cell: (row) => row.name }, { title: "Made", number: true, cell: (row) => moment(row.at) }, { title: "Folder", wide: true, cell: (row) => row.folder },
      { title: "What it holds", wide: true, cell: (row) => Object.entries(row.facts).map(([name, value]) => `${name} ${value}`).join(", ") },
    ], told.savepoints, { label: "Savepoints" }) : h("p", { class: "hint" }, told.hint));
  };
  await update();
  return { element: panel("Savepoints", "A job's state and positions as they were once, to go back to or to go on from elsewhere.", body), update };
}
