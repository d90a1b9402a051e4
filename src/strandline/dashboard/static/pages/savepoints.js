// The savepoints of a job.

import { get } from "/static/api.js";
import { fill, h, panel, table } from "/static/dom.js";
import { moment } from "/static/format.js";

export async function savepoints({ path }) {
  const body = h("div", {});
  const update = async () => {
    const data = await get(`${path}/savepoints`);
    fill(body, data.savepoints.length ? table([
      { title: "Savepoint", kind: "title", cell: (row) => row.name }, { title: "Created", number: true, cell: (row) => moment(row.at) }, { title: "Folder", wide: true, cell: (row) => row.folder },
      { title: "Contents", wide: true, cell: (row) => Object.entries(row.facts).map(([name, value]) => `${name} ${value}`).join(", ") },
    ], data.savepoints, { label: "Savepoints" }) : h("p", { class: "hint" }, data.hint));
  };
  await update();
  return { element: panel("Savepoints", "Snapshots of a job's state and positions, to return to or to continue from elsewhere.", body), update };
}
