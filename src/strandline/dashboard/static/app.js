// The frame around every page: the location, the connection state, the theme and keyboard shortcuts.

import { get, listen } from "/static/api.js";
import { repaint } from "/static/charts.js";
import { badge, fill, h } from "/static/dom.js";
import { jobs } from "/static/pages/jobs.js";
import { overview } from "/static/pages/overview.js";
import { time } from "/static/pages/time.js";
import { panes } from "/static/pages/panes.js";
import { lateness } from "/static/pages/lateness.js";
import { partitions } from "/static/pages/partitions.js";
import { keys } from "/static/pages/keys.js";
import { stages } from "/static/pages/stages.js";
import { state } from "/static/pages/state.js";
import { letters } from "/static/pages/letters.js";
import { savepoints } from "/static/pages/savepoints.js";
import { lineage } from "/static/pages/lineage.js";
import { events } from "/static/pages/events.js";

const TABS = [
  ["overview", "Overview", overview, "o"], ["time", "Time", time, "t"], ["panes", "Panes", panes, "p"],
  ["lateness", "Lateness", lateness, "l"], ["partitions", "Partitions", partitions, "a"], ["keys", "Hot keys", keys, "k"],
  ["stages", "Stages", stages, "g"], ["state", "State", state, "s"], ["letters", "Dead letters", letters, "d"],
  ["savepoints", "Savepoints", savepoints, "v"], ["lineage", "Lineage", lineage, "i"], ["events", "Events", events, "e"],
];

const main = document.getElementById("main");
const where = h("span", { class: "where" });
const feed = h("span", { class: "feed", role: "status", "aria-live": "polite" });
let page = null, place = null, turn = 0;

function frame() {
  fill(document.getElementById("bar"),
    h("a", { class: "mark", href: "#/" }, h("img", { src: "/static/icon.svg", alt: "" }), "Strandline"),
    where, feed,
    h("button", { class: "round", type: "button", title: "Light or dark (x)", "aria-label": "Light or dark", click: theme }, "◐"),
    h("button", { class: "round", type: "button", title: "Keys (?)", "aria-label": "Help", click: help }, "?"));
}

function showFeedState(state) {
  feed.className = `feed ${state}`;
  fill(feed, h("span", { class: "sign", "aria-hidden": "true" }, state === "live" ? "●" : "■"), state === "live" ? " live" : " connection lost, reconnecting");
}

// #/ is the list of jobs, #/job/ID/TAB is a page of one job.
function currentRoute() {
  const [, kind, id, tab] = location.hash.split("/");
  if (kind !== "job" || !id) return { tab: "jobs" };
  const known = TABS.some(([name]) => name === tab) ? tab : "overview";
  return { id: decodeURIComponent(id), tab: known };
}

async function show() {
  const next = currentRoute(), ticket = ++turn;
  page?.close?.();
  page = null;
  place = next;
  try {
    const made = next.id ? await jobPage(next) : await jobs();
    if (ticket !== turn) { made.close?.(); return; }
    page = made;
    fill(main, made.element);
    made.shown?.();
    document.title = made.title ? `${made.title} · Strandline` : "Strandline";
  } catch (problem) {
    if (ticket === turn) fill(main, problemNotice(problem));
  }
}

function problemNotice(problem) {
  if (problem.status === 401) return h("div", { class: "notice bad" }, "This browser is signed out. Open the link that the dashboard printed.");
  return h("div", { class: "notice bad" }, problem.message, problem.hint ? h("div", { class: "soft" }, problem.hint) : null);
}

// What all pages of a job share: its name, its verdict and its tabs.
async function jobPage({ id, tab }) {
  const path = `/jobs/${encodeURIComponent(id)}`;
  const head = h("div", { class: "head" });
  const draw = (card) => {
    fill(where, "/ ", card.name);
    fill(head, h("h1", {}, card.name), badge(card.verdict, card.state), h("span", { class: "soft mono" }, card.folder),
      h("p", { class: `sentence text-${card.verdict}` }, card.sentence));
  };
  const first = await get(path);
  draw(first.card);
  const tabs = h("nav", { class: "tabs", "aria-label": "Pages of this job" }, TABS.map(([name, title]) =>
    h("a", { href: `#/job/${id}/${name}`, "aria-current": name === tab ? "page" : undefined }, title)));
  const [, title, make] = TABS.find(([name]) => name === tab);
  const inner = await make({ path, first });
  return {
    title: `${first.card.name}: ${title}`,
    element: h("div", {}, head, tabs, inner.element),
    shown: () => { tabs.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); inner.shown?.(); },
    close: () => inner.close?.(),
    update: async () => {
      const fresh = await get(path);
      draw(fresh.card);
      await inner.update?.(fresh);
    },
  };
}

// One update at a time; changes in the meantime are fetched afterwards.
let updating = false, again = false;
async function changed(ids) {
  if (!page?.update || (place.id && !ids.includes(place.id))) return;
  if (updating) { again = true; return; }
  updating = true;
  try {
    await page.update();
  } catch (problem) {
    if (problem.status === 401 || problem.status === 404) fill(main, problemNotice(problem));
  } finally {
    updating = false;
    if (again) { again = false; changed(place.id ? [place.id] : []); }
  }
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("strandline-theme", next); } catch { /* kept until the page is closed */ }
  repaint();
}

function help() {
  const lines = [["?", "this help"], ["h", "all jobs"], ["j / k", "next or previous row"], ["Enter", "open the row"], ["/", "search"],
    ["[ / ]", "previous or next page of a job"], ["x", "light or dark"], ["Esc", "close"],
    ...TABS.map(([, title, , key]) => [`g ${key}`, title])];
  const dialog = h("dialog", { "aria-label": "Keys", close: () => dialog.remove() }, h("h2", {}, "Keys"),
    h("dl", { class: "facts" }, lines.map(([key, what]) => [h("dt", {}, key.split(" ").map((each, place) => [place ? " " : "", each === "/" && key.length > 1 ? "/" : h("kbd", {}, each)])), h("dd", {}, what)])),
    h("div", { class: "tools" }, h("button", { type: "button", click: () => dialog.close() }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

let going = false;
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (going) {
    going = false;
    const found = TABS.find(([, , , key]) => key === event.key);
    if (found && place?.id) location.hash = `#/job/${place.id}/${found[0]}`;
    return;
  }
  const acts = { "?": help, h: () => { location.hash = "#/"; }, x: theme, g: () => { going = true; }, "[": () => step(-1), "]": () => step(1),
    j: () => row(1), k: () => row(-1), "/": () => main.querySelector("input[type=search]")?.focus() };
  const act = acts[event.key];
  if (act) { event.preventDefault(); act(); }
}

function step(by) {
  if (!place?.id) return;
  const at = TABS.findIndex(([name]) => name === place.tab);
  location.hash = `#/job/${place.id}/${TABS[(at + by + TABS.length) % TABS.length][0]}`;
}

function row(by) {
  const rows = [...main.querySelectorAll("tr.opens")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  rows[at < 0 ? 0 : Math.min(Math.max(at + by, 0), rows.length - 1)].focus();
}

frame();
showFeedState("live");
addEventListener("hashchange", () => { fill(where); show(); });
addEventListener("keydown", pressed);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
await show();
listen({ onchange: ({ jobs: ids }) => changed(ids), onstate: showFeedState });
