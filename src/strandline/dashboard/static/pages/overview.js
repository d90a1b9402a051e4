// The golden numbers, firing alarms, the outcomes of elements, and the time of a batch by stage.

import { get } from "/static/api.js";
import { Chart, shares, spark } from "/static/charts.js";
import { badge, fill, h, panel, table } from "/static/dom.js";
import { goldenText } from "/static/pages/jobs.js";
import { ago, clock, many, moment, percent, seconds, whole } from "/static/format.js";

const WORDS = { ok: "ok", warn: "warning", bad: "critical", off: "not judged" };
const TIMINGS = { early: "early", on_time: "on time", late: "late", element: "elements" };

export async function overview({ path, first }) {
  const five = h("div", { class: "five" }), alarms = h("div", {}), ledger = h("div", {}), stages = h("div", {}), latency = h("div", {}), facts = h("div", {}), signs = h("div", {});
  const rates = new Chart([{ label: "in", colour: "accent", fill: true }, { label: "out", colour: "early" }, { label: "late", colour: "late" }, { label: "dead", colour: "bad" }], { height: 190, format: (value) => `${many(value)}/s` });
  const latencies = new Chart([{ label: "p50", colour: "accent", fill: true }, { label: "p95", colour: "early" }, { label: "p99", colour: "late" }], { height: 190, format: seconds });

  const draw = (now) => {
    const card = now.card;
    fill(five, card.golden.map((golden) => h("article", { class: `gold ${golden.verdict}` },
      h("div", { class: "top" }, h("h3", {}, golden.label), badge(golden.verdict, WORDS[golden.verdict])),
      h("div", { class: "value" }, goldenText(golden)), h("div", { class: "beside" }, golden.beside),
      spark(golden.series, `${golden.label} lately`), h("p", { class: "sentence" }, golden.sentence))));
    fill(alarms, now.alarms.map((alarm) => h("div", { class: `notice ${alarm.state === "firing" ? "bad" : "warn"}`, role: "alert" },
      h("b", {}, alarm.rule), ` since ${moment(alarm.since)}: ${alarm.text}`, alarm.hint ? h("div", { class: "soft" }, alarm.hint) : null)),
      now.problem && card.verdict !== "bad" ? h("div", { class: "notice warn" }, now.problem) : null);
    const counts = now.ledger, of = Math.max(counts.read + counts.again, 1);
    fill(ledger, counts.read + counts.again === 0 ? h("p", { class: "hint" }, "No elements in the last batches.") : shares(
      [["contributed", "accent"], ["late", "late"], ["dead", "bad"], ["filtered", "off"]].map(([name, colour]) => ({ name, colour, count: counts[name], share: counts[name] / of })), (part) => whole(part.count)),
      h("p", { class: "hint" }, `${whole(counts.read)} in${counts.again ? ` + ${whole(counts.again)} to further steps` : ""} = ${whole(counts.contributed)} contributed + ${whole(counts.late)} late + ${whole(counts.dead)} dead letters + ${whole(counts.filtered)} filtered; ${whole(counts.emitted)} rows out, ${whole(counts.retractions)} of them retractions.`));
    fill(stages, now.stages.length ? [shares(now.stages, (part) => seconds(part.seconds)), h("p", { class: "hint" }, now.limited_by)] : h("p", { class: "hint" }, "Not measured yet."));
    fill(latency, table([
      { title: "Panes", cell: (row) => TIMINGS[row.timing] ?? row.timing }, { title: "Rows", number: true, cell: (row) => whole(row.rows) },
      { title: "p50", number: true, cell: (row) => seconds(row.p50) }, { title: "p95", number: true, cell: (row) => seconds(row.p95) }, { title: "p99", number: true, cell: (row) => seconds(row.p99) },
    ], now.latency, { empty: "No panes yet.", label: "Latency by timing" }));
    fill(signs, table([
      { title: "Number", kind: "title", cell: (row) => row.name }, { title: "Verdict", cell: (row) => badge(row.verdict, WORDS[row.verdict]) },
      { title: "Value", kind: "nowrap", cell: (row) => row.value }, { title: "Why", wide: true, cell: (row) => row.why },
    ], now.signs.slice(5), { empty: "No batch yet.", label: "Other verdicts" }));
    fill(facts, h("dl", { class: "facts" },
      h("dt", {}, "Watermark"), h("dd", {}, now.watermark === null ? "none yet, or at the end" : `${moment(now.watermark)}, ${seconds(now.behind)} behind the clock`),
      now.held_by ? [h("dt", {}, "Held back by"), h("dd", {}, `partition ${now.held_by}`)] : null,
      now.idle.length ? [h("dt", {}, "Idle"), h("dd", {}, now.idle.join(", "))] : null,
      h("dt", {}, "Run"), h("dd", {}, now.started === null ? "–" : `${now.run}, started ${moment(now.started)} (${ago(now.started, now.now)}) as process ${now.pid} on ${now.host}`),
      h("dt", {}, "Restarts"), h("dd", {}, whole(now.restarts)),
      h("dt", {}, "Waits for sinks"), h("dd", {}, whole(now.retries)),
      h("dt", {}, "Failure budget"), h("dd", {}, now.budget === null ? "none is set" : `${percent(now.budget)} spent`),
      h("dt", {}, "Batch"), h("dd", {}, card.batch === null ? "–" : `${card.batch}, committed at ${clock(card.seen)}`)));
  };

  const lines = async () => {
    const { at, values } = await get(`${path}/series`, { span: 3600, points: 400 });
    const times = at.map((ms) => ms / 1000);
    rates.update([times, values.in, values.out, values.late, values.dead]);
    latencies.update([times, values.p50, values.p95, values.p99]);
  };

  draw(first);
  await lines();
  const element = h("div", {}, alarms, five,
    h("div", { class: "two" }, panel("Events a second", "", rates.element), panel("From event time to visible in the sink", "", latencies.element)),
    h("div", { class: "two" },
      panel("Every element is accounted for", "Over the last batches.", ledger),
      panel("Where a batch's time goes", "Seconds per batch, average of the last batches.", stages)),
    h("div", { class: "two" }, panel("Latency by timing", "From an element's event time to its pane in the sink.", latency), panel("This run", "", facts)),
    panel("Other verdicts", "", signs));
  return { element, update: async (now) => { draw(now); await lines(); }, close: () => { rates.close(); latencies.close(); } };
}
