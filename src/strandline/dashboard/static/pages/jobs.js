// A row per job, those with problems first.

import { get } from "/static/api.js";
import { spark } from "/static/charts.js";
import { badge, fill, h } from "/static/dom.js";
import { ago, many, seconds } from "/static/format.js";

export function goldenText(golden) {
  if (golden.value === null) return "–";
  if (golden.unit === "seconds") return seconds(golden.value);
  return golden.unit === "per_second" ? `${many(golden.value)}/s` : many(golden.value);
}

const TITLES = ["Lag", "Events in", "End to end, p99", "Commit", "State"];

export async function jobs() {
  const head = h("div", { class: "head" }), body = h("div", {});
  const search = h("input", { type: "search", placeholder: "Search jobs", "aria-label": "Search jobs", input: () => draw() });
  let known = { jobs: [] };

  const line = (job) => {
    const open = () => { location.hash = `#/job/${job.id}/overview`; };
    return h("tr", { class: "opens", tabindex: "0", "data-key": job.id, click: open, keydown: (event) => { if (event.key === "Enter") open(); } },
      h("td", { class: "title" }, h("a", { class: "name", href: `#/job/${job.id}/overview`, tabindex: "-1" }, job.name)),
      h("td", { "data-title": "State" }, badge(job.verdict, job.state)),
      h("td", { class: "wide" }, job.sentence),
      job.golden.map((golden, place) => h("td", { class: "number", "data-title": TITLES[place], title: golden.sentence },
        h("span", { class: golden.verdict === "ok" || golden.verdict === "off" ? undefined : `text-${golden.verdict}` }, goldenText(golden)), spark(golden.series, `${golden.label} lately`))),
      h("td", { class: "number soft", "data-title": "Last batch" }, ago(job.seen, known.now)));
  };

  const draw = () => {
    const text = search.value.toLowerCase();
    const found = known.jobs.filter((job) => `${job.name} ${job.folder} ${job.state}`.toLowerCase().includes(text));
    const focused = document.activeElement?.closest?.("tr")?.dataset.key;
    const count = (verdict) => known.jobs.filter((job) => job.verdict === verdict).length;
    fill(head, h("h1", {}, "Jobs"), badge("bad", `${count("bad")} critical`), badge("warn", `${count("warn")} warning`), badge("ok", `${count("ok")} ok`), badge("off", `${count("off")} inactive`));
    if (!known.jobs.length) {
      fill(body, h("div", { class: "panel" }, h("h2", {}, "No jobs yet"),
        h("p", { class: "hint" }, "A job appears here when it starts: ", h("code", {}, "strandline run FILE.py:NAME --checkpoint FOLDER"), ", or ", h("code", {}, "./demo"), ". To show other folders: ", h("code", {}, "strandline dashboard FOLDER…"))));
      return;
    }
    fill(body, h("div", { class: "panel scrolls" }, h("table", { class: "jobs cards", "aria-label": "Jobs" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Job"), h("th", { scope: "col" }, "State"), h("th", { scope: "col" }, "Verdict"), TITLES.map((title) => h("th", { scope: "col", class: "number" }, title)), h("th", { scope: "col", class: "number" }, "Last batch"))),
      h("tbody", {}, found.map(line))),
      found.length ? null : h("p", { class: "hint" }, "No job matches.")));
    if (focused) body.querySelector(`tr[data-key="${CSS.escape(focused)}"]`)?.focus();
  };

  const update = async () => { known = await get("/jobs"); draw(); };
  await update();
  return { element: h("div", {}, head, h("div", { class: "tools" }, search), body), update, title: "Jobs" };
}
