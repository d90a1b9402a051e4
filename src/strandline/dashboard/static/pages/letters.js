// Find, inspect and redrive dead letters.

import { get, post } from "/static/api.js";
import { badge, fill, h, panel, table } from "/static/dom.js";
import { moment, whole } from "/static/format.js";

export async function letters({ path }) {
  const chosen = new Set(), info = await get("/jobs");
  let data = null;
  const search = h("input", { type: "search", placeholder: "Search letters", "aria-label": "Search letters", input: later(() => update()) });
  const state = h("select", { "aria-label": "State", change: () => update() }, h("option", { value: "" }, "all"), h("option", { value: "new" }, "new"), h("option", { value: "redriven" }, "redriven"));
  const reason = h("select", { "aria-label": "Reason", change: () => update() }, h("option", { value: "" }, "every reason"));
  const send = h("button", { class: "main", type: "button", click: () => redrive([...chosen]) }, "Redrive");
  const notice = h("div", { role: "status" }), body = h("div", {});

  const update = async () => {
    data = await get(`${path}/letters`, { search: search.value, state: state.value, reason: reason.value });
    const kept = reason.value;
    fill(reason, h("option", { value: "" }, "every reason"), Object.entries(data.reasons).map(([name, count]) => h("option", { value: name, selected: name === kept }, `${name} (${count})`)));
    for (const id of [...chosen]) if (!data.letters.some((letter) => letter.id === id && letter.state === "new")) chosen.delete(id);
    draw();
  };

  const draw = () => {
    send.disabled = !chosen.size || !data.can_redrive || info.read_only;
    send.title = info.read_only ? "This dashboard is read-only" : data.can_redrive ? "" : data.hint;
    fill(send, chosen.size ? `Redrive ${whole(chosen.size)}` : "Redrive");
    if (!data.available) { fill(body, h("p", { class: "hint" }, data.hint)); return; }
    const tick = (letter) => letter.state !== "new" ? "" : h("input", { type: "checkbox", "aria-label": `Choose ${letter.id}`, checked: chosen.has(letter.id),
      click: (event) => event.stopPropagation(), change: (event) => { if (event.target.checked) chosen.add(letter.id); else chosen.delete(letter.id); draw(); } });
    const focused = document.activeElement?.closest?.("tr")?.dataset.key;
    fill(body, h("p", { class: "hint" }, `${whole(data.matching)} of ${whole(data.total)} letters, newest first. `, data.hint),
      table([
        { title: "", cell: tick }, { title: "Reason", kind: "title", cell: (row) => row.reason }, { title: "What", wide: true, cell: (row) => row.detail },
        { title: "Step", cell: (row) => row.step }, { title: "From", wide: true, cell: (row) => [row.source, row.source && row.place ? " " : "", h("span", { class: "soft" }, row.place)] },
        { title: "First seen", number: true, cell: (row) => moment(row.first_seen) }, { title: "State", cell: (row) => badge(row.state === "new" ? "warn" : "ok", row.state) },
      ], data.letters, { empty: data.total ? "No letter matches." : "There are no dead letters.", label: "Dead letters", onrow: inspect, key: (row) => row.id }));
    if (focused) body.querySelector(`tr[data-key="${CSS.escape(focused)}"]`)?.focus();
  };

  const redrive = async (ids) => {
    send.disabled = true;
    try {
      const done = await post(`${path}/redrive`, { letters: ids });
      const stayed = Object.entries(done.left);
      fill(notice, h("div", { class: `notice ${stayed.length ? "warn" : ""}` }, `${whole(done.sent.length)} redriven to their sources.`,
        stayed.map(([id, why]) => h("div", { class: "soft" }, `${id.slice(0, 12)} not redriven: ${why}`))));
    } catch (problem) {
      fill(notice, h("div", { class: "notice bad" }, problem.message, problem.hint ? h("div", { class: "soft" }, problem.hint) : null));
    }
    chosen.clear();
    await update();
  };

  const inspect = async (row) => {
    const letter = await get(`${path}/letters/${encodeURIComponent(row.id)}`);
    const dialog = h("dialog", { "aria-label": "Dead letter", close: () => dialog.remove() }, h("h2", {}, letter.fields.reason ?? "Dead letter"),
      h("dl", { class: "facts" }, Object.entries(letter.fields).map(([name, value]) => [h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, value)])),
      h("h3", {}, letter.raw_is_text ? "The record" : "The record in hexadecimal"), h("pre", {}, letter.raw || "(no bytes)"),
      h("div", { class: "tools" },
        row.state === "new" ? h("button", { class: "main", type: "button", disabled: !data.can_redrive || info.read_only, click: () => { dialog.close(); redrive([row.id]); } }, "Redrive it") : null,
        h("button", { type: "button", click: () => dialog.close() }, "Close")));
    document.body.append(dialog);
    dialog.showModal();
  };

  await update();
  return { element: panel("Dead letters", "Records that could not be processed, with the reason; no record is lost.", h("div", { class: "tools" }, search, reason, state, send), notice, body), update };
}

function later(act) {
  let timer;
  return () => { clearTimeout(timer); timer = setTimeout(act, 150); };
}
