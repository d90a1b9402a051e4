"""Render the stories in tests/transcripts/ as docs/reference/semantics.md, grouped by rule.

Each story names its rule; RULES defines each rule in one sentence. A rule without a story, or a story with an unknown
rule, is an error. --check writes nothing and fails if the page is not up to date.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
STORIES: Final = ROOT / "tests" / "transcripts"
PAGE: Final = ROOT / "docs" / "reference" / "semantics.md"
LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

SECTIONS: Final[dict[str, str]] = {
    "0": "Conventions",
    "1": "Time and watermarks",
    "2": "Window assignment",
    "3": "Batches",
    "4": "Triggers",
    "5": "Panes",
    "6": "Accumulation",
    "7": "Lateness",
    "8": "Pane timestamps",
    "9": "Joins",
    "11": "Evictors and count windows",
    "13": "Deduplication",
    "chains": "Several inputs and operators",
    "aggregates": "Aggregates",
    "ttl": "A key's global window is closed once no element has arrived for longer than its time to live.",
    "restart": "Stop, restore and continue: results do not change.",
    "format": "The story format",
}

RULES: Final[dict[str, str]] = {
    "0 milliseconds": "Time is in whole milliseconds; an event time is floored to its millisecond.",
    "0 saturation": "Sums of times saturate at the ends of time and never wrap.",
    "0 no event time": "An element whose event time is missing, unreadable or reserved is a dead letter.",
    "0 clock": "The clock of a batch never decreases.",
    "0 heartbeat": "A heartbeat without rows is a batch.",
    "0 window": "A window is [start, end); its max timestamp is end - 1 ms; its identity is key, start and end.",
    "0 behind": "An element at or before the watermark is behind; behind is not the same as late.",
    "0 null key": "Null is a key like any other.",
    "0 order": "Order is event time, then source position; a retraction comes before the pane that replaces it.",
    "1 meaning": "Watermark T asserts: no more elements at or before T. A window is complete at its max timestamp.",
    "1 bounded": "bounded(d) is the highest event time - d - 1 ms.",
    "1 percentile": "percentile(p) is the highest event time - the p-quantile of recent lags - 1 ms, within limits.",
    "1 from source": "A source may supply its own watermark.",
    "1 processing time": "In processing time an element's time is the clock, and the watermark is the clock - 1 ms.",
    "1 ingest time": "Ingest time is the time at which the log accepted the element.",
    "1 monotone": "A watermark never decreases; before the first element there is none.",
    "1 own batch": "A batch never makes its own elements late.",
    "1 future bound": "An event counts for the watermark at most as clock plus bound; a dead letter does not count.",
    "1 end": "A finished partition leaves the minimum; when all are finished, or on drain, each window closes.",
    "1 partitions combine": "A source's watermark is the minimum of its active partitions, even without data.",
    "1 partitions idle": "A partition silent for longer than idle_after is excluded and keeps its own watermark.",
    "1 partitions return": "A returning partition holds the watermark back; the common watermark judges its rows.",
    "1 partitions all idle": "When all partitions are idle the watermark is the maximum, and the source is idle.",
    "1 inputs combine": "The watermark of several inputs is the minimum of those that are active and caught up.",
    "1 inputs idle": "An idle input is excluded, and its watermarks are ignored until it is active again.",
    "1 inputs return": "A returning input is excluded until it has reached the combined watermark.",
    "1 inputs all idle": "When the last input that determined the watermark becomes idle, it jumps to the maximum.",
    "1 on_return": "on_return decides whether a returning input holds the watermark back or catches up.",
    "1 output watermark": "A step forwards its watermark, held back to just before each pane that is still due.",
    "2 negative times": "Times before the epoch are assigned to windows like times after it.",
    "2 offset": "Offsets may be negative and count modulo the period.",
    "2 tumbling": "Tumbling windows lie end to end.",
    "2 sliding": "An element is in each sliding window that covers it; an element in none is filtered.",
    "2 cumulating": "An element is in each prefix, by whole steps, of its tumbling window that contains it.",
    "2 session": "An element opens [t, t + gap); the gap is a constant or a column; a gap <= 0 is a dead letter.",
    "2 global": "The global window completes at the end of time only.",
    "2 custom": "A custom window's bounds are two columns of the element.",
    "2 merging": "Sessions merge per key, transitively, independent of row order in a batch.",
    "2 touching": "Sessions that touch merge, unless set to stay separate.",
    "2 merge then judge": "Lateness is judged on the merged session.",
    "2 closed sessions": "Only open sessions merge; a result equal to a closed session is refused, any other is open.",
    "3 one pane": "A window emits at most one pane per batch.",
    "3 order": "Judge, add, advance clock and watermark, then test once.",
    "3 no test": "Without a new element and without a due deadline, no test.",
    "3 batches": "An input step is a batch without time progress; a clock or watermark step is a batch without rows.",
    "4 default": "The default trigger fires on time, then once for each batch of late elements.",
    "4 closed": "When the root trigger has finished, the window is closed: later elements are refused as closed.",
    "4 after_watermark": "after_watermark fires once, when the watermark reaches the max timestamp.",
    "4 after_watermark early": "An early part fires repeatedly; without a late part the on-time firing is the last.",
    "4 after_watermark late": "A late part fires repeatedly after the end.",
    "4 after_watermark merge": "A merge resets after_watermark unless all had finished and the result is complete.",
    "4 after_count": "after_count(n) fires once when n elements have arrived since it was last cleared.",
    "4 after_count merge": "Counts add up; finished in any merged window means finished.",
    "4 after_processing_time": "It fires strictly after the first element's arrival plus the delay.",
    "4 after_processing_time aligned": "The target is rounded up to a whole period; an exact multiple stays.",
    "4 after_processing_time merge": "The smallest target counts; finished only if the surviving window was.",
    "4 after_event_time": "It fires when the watermark reaches the boundary after the earliest unemitted element.",
    "4 after_event_time merge": "As for processing time.",
    "4 when": "A condition over the value of the next pane; level-triggered.",
    "4 when merge": "It is tested on the merged value; finished in any merged window means finished.",
    "4 never": "Never fires; contents are emitted when the window expires.",
    "4 repeatedly": "Fires as its part does; a finished part restarts; it merges as its part does.",
    "4 first_of": "Fires when any part would; the others are cleared; finished once fired.",
    "4 first_of merge": "All parts merge; finished if any is.",
    "4 all_of": "Fires when every part would or has, at the same test; finished once fired.",
    "4 all_of merge": "All parts merge; finished if all are.",
    "4 in_sequence": "Fires as its first unfinished part does; finished when all are.",
    "4 in_sequence merge": "Parts merge in order while all before them are finished; the rest are cleared.",
    "4 or_finally": "Fires as the main part does, until the other fires once; the other counts across firings.",
    "4 or_finally merge": "Both parts merge; finished if either is.",
    "4 elements reach": "All parts of first_of receive an element, but only the current part of in_sequence.",
    "4 every": "A repeated delay starts with the next element; a jump over several targets is one firing.",
    "4 expired targets": "A target of an expired window has no effect.",
    "4 nested": "Triggers nest to any depth.",
    "5 timing": "EARLY*, ON_TIME?, LATE*; on time is the first pane after the end that holds elements from before it.",
    "5 index": "Panes of an identity are numbered from 0; the non-speculative index is -1 on early panes.",
    "5 first and last": "First: no pane before it. Last: none follows; by default a window may close without it.",
    "5 identity": "A session that grows or merges to other bounds restarts its pane numbers.",
    "5 empty": "A firing without new elements emits only on time, or as the final pane, if configured.",
    "5 empty value": "An empty pane repeats the value; when discarding it has the aggregate's empty value.",
    "6 classic": "7, 7, 8 or 7, 14, 22, or 7; -7, 14; -14, 22.",
    "6 discarding": "A discarding pane holds elements since the last firing.",
    "6 accumulating": "An accumulating pane holds all elements of the window.",
    "6 retracting": "A retracting pane withdraws the previous value, then emits that of all elements.",
    "6 retraction row": "A retraction repeats the pane it withdraws; equal values are not suppressed.",
    "6 merged sessions": "Each merged session that had fired is retracted when the result first fires.",
    "6 final": "Closed and expired windows are final.",
    "7 gc time": "A window lives until the watermark reaches its max timestamp plus the allowed lateness.",
    "7 accept": "Behind but accepted is normal: the window fires as its trigger says.",
    "7 closing": "At its gc time a window fires a last time for its remaining contents, then all state is deleted.",
    "7 one jump": "A watermark that passes end and gc time at once emits one pane, on time and last.",
    "7 late output": "A late row carries the element, the refusing window, the watermark and the reason.",
    "7 per element": "An element is late only if all its windows refuse it.",
    "7 per window": "On request each refusing window makes a late row, marked partial if another accepted the element.",
    "8 end_of_window": "By default a pane carries its window's max timestamp.",
    "8 earliest": "Or the earliest time of its counted elements.",
    "8 latest": "Or the latest.",
    "8 counted": "Elements behind the watermark do not count; where none counts it is the max timestamp.",
    "8 release": "A firing releases the hold.",
    "8 merge": "On a merge holds combine in the same way.",
    "11 evictors": "Evictors run at a firing, on contents in arrival order; evicted elements count as contributed.",
    "11 keep_last": "keep_last(n) drops from the front until n remain.",
    "11 keep_within": "keep_within(d) drops elements d or more older than the newest.",
    "11 keep_delta": "keep_delta(f, x) drops elements whose distance from the last reaches x.",
    "11 count": "A count window is exact, has no lateness, and is emitted partially filled at the end of input.",
    "11 count slide": "A sliding count window emits the last n after each slide.",
    "9 pairs": "Rows with equal keys and event times in the interval are a pair, emitted once, at the later time.",
    "9 bounds": "A right row is a partner from `before` earlier to `after` later than the left row, bounds included.",
    "9 condition": "A pair must also fulfil the condition; a condition that is null does not hold.",
    "9 null key": "A null key has no partner.",
    "9 columns": "A row of the result has the key and the columns of both sides, each under a name of its own.",
    "9 padding": "A row without a partner is emitted once, with its own time, when none can come any more.",
    "9 semi and anti": "A semi join emits the left rows with a partner, once each; an anti join those without one.",
    "9 late": "A row behind the watermark by the allowed lateness or more is late, and neither joined nor padded.",
    "9 output watermark": "The output watermark stays below every row that may still be emitted without a partner.",
    "9 state": "A row is deleted when no partner can come any more.",
    "9 window": "Rows with equal keys in one window are pairs when the window fires, by default at its end.",
    "9 window padding": "A firing decides which rows of its window have no partner, and emits them if the join does.",
    "9 window sessions": "A session has rows of both sides; a row that joins sessions joins all of their rows.",
    "9 window triggers": "A window fires as its trigger says; later firings depend on the accumulation mode.",
    "9 window late firings": "A late firing emits new rows, all rows again, or the difference with retractions.",
    "9 window late": "A row whose windows have all expired is late, and neither joined nor padded.",
    "9 chains": "A join reads other operators and is read by them.",
    "13 first": "keep first: an element less than `within` away from an emitted one of its key is a duplicate.",
    "13 order": "Within a batch elements are compared by event time, then input, partition and offset.",
    "13 expiry": "State of an element is deleted once the watermark passes its time by `within` and the lateness.",
    "13 late": "An element at or before the watermark - allowed lateness is late; without `within` none is.",
    "13 last": "keep last: a newer element less than `within` after the last one retracts and replaces it.",
    "13 forever": "Without `within` every key is kept, also after a drain.",
    "chains union": "A union follows the lowest watermark of its inputs and groups by the columns that it names.",
    "chains identity": "Input, partition and offset identify an element.",
    "chains panes": "A pane is an element of the next step, at its timestamp; that step fires when the first one does.",
    "chains retractions": "A step over a retracting one corrects its own rows.",
    "chains late": "Each step judges lateness by its own watermark before the batch.",
    "chains dead letters": "Each input refuses its elements by its own watermark rule.",
    "chains outputs": "Steps that no other step reads are outputs, each with its rows and late rows.",
    "aggregates count": "Elements, or values that are not null.",
    "aggregates sum": "The total; 0 over nothing.",
    "aggregates min max": "The minimum and the maximum.",
    "aggregates mean": "The average.",
    "aggregates variance": "Of the sample, or of the population.",
    "aggregates stddev": "The square root of the variance.",
    "aggregates first last": "By event time, then source position.",
    "aggregates argmin argmax": "A column where another is least or greatest.",
    "aggregates collect": "All values, including nulls.",
    "aggregates count_distinct": "Distinct values, exactly.",
    "aggregates approx_count_distinct": "Distinct values, approximately.",
    "aggregates quantile": "The value of nearest rank, as the middle of its bucket.",
    "aggregates top_k": "The k greatest values.",
    "aggregates any_true all_true": "Whether some value is true; whether none is false.",
    "aggregates bits": "And, or, exclusive or.",
    "aggregates string_agg": "Texts, concatenated.",
    "aggregates merge": "Aggregates of merged sessions are those of all their elements.",
    "aggregates names": "Aggregates of a pane have different names.",
    "ttl": "A key's global window is closed once no element has arrived for longer than its time to live.",
    "restart": "Stop, restore and continue: results do not change.",
    "format times": "Times are durations from the epoch, ISO timestamps or whole milliseconds.",
    "format steps": "What each step of a story does.",
    "format expectations": "When an expectation holds, and when a story fails.",
    "format errors": "Invalid stories are refused before they run, with the reason.",
}


class Incomplete(Exception):
    """The stories and the rules do not cover each other."""


@dataclass(frozen=True)
class Story:
    """One story: where it stands, what it says, and its text without title and rule."""

    path: Path
    title: str
    rule: str
    pipeline: dict[str, Any]
    text: str


def stories_in(folder: Path) -> Iterator[Story]:
    """Every story below a folder, file by file in order of their names."""
    for path in sorted(folder.rglob("*.story.yaml")):
        for text in re.split(r"^---$", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            told = next(yaml.load_all(text, Loader=LOADER), None)
            if told is not None:
                yield Story(path, told["story"], str(told.get("rule", "")), told.get("pipeline") or {}, _body(text))


def _body(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if not line.startswith(("story:", "rule:"))]
    return "\n".join(lines)


def by_rule(stories: list[Story]) -> dict[str, list[Story]]:
    """The stories of each rule, in the order of the rules; all of them, and none without a rule."""
    unknown = [f"{story.path}: no rule {story.rule!r}" for story in stories if story.rule not in RULES]
    found = {rule: [story for story in stories if story.rule == rule] for rule in RULES}
    missing = [f"no story shows the rule {rule!r}" for rule, shown in found.items() if not shown]
    if unknown or missing:
        raise Incomplete("\n".join(unknown + missing))
    return found


def summary(pipeline: dict[str, Any]) -> str:
    """The pipeline in a line: where, when, how."""
    if "deduplicate" in pipeline:
        parts = [f"deduplicate {_plain(pipeline['deduplicate'])}"]
        return "; ".join(parts + [f"lateness {pipeline[name]}" for name in ("allowed_lateness",) if name in pipeline])
    parts = [_plain(pipeline.get("window", "global"))]
    if "trigger" in pipeline:
        parts.append(_plain(pipeline["trigger"]))
    parts.append(str(pipeline.get("accumulation", "discarding")))
    if "allowed_lateness" in pipeline:
        parts.append(f"lateness {pipeline['allowed_lateness']}")
    others = ("watermark", "evict", "ttl", "pane_timestamp")
    parts += [f"{name} {_plain(pipeline[name])}" for name in others if name in pipeline]
    return "; ".join(parts)


def _plain(given: Any) -> str:
    match given:
        case dict():
            return ", ".join(
                f"{name} {_plain(part)}".strip() if part is not None else name for name, part in given.items()
            )
        case list():
            return "(" + "; ".join(_plain(part) for part in given) + ")"
        case _:
            return str(given)


def page(stories: list[Story]) -> str:
    """The whole page: contents, coverage, then every story under its rule."""
    found = by_rule(stories)
    lines = [
        "# Semantics",
        "",
        f"{len(stories)} stories, rendered from `tests/transcripts/` by `scripts/semantics.py`.",
        "Together they are the specification: reference, kernel and Spark must produce exactly this output.",
        "",
        "## Contents",
        "",
    ]
    for section, name in SECTIONS.items():
        count = sum(len(shown) for rule, shown in found.items() if _section(rule) == section)
        lines.append(f"- [{_heading(section, name)}](#{_slug(_heading(section, name))}): {count} stories")
    lines += ["- [Coverage](#coverage): which stories show which rule", ""]
    for section, name in SECTIONS.items():
        lines += [f"## {_heading(section, name)}", ""]
        for rule, shown in found.items():
            if _section(rule) == section:
                lines += _told(rule, shown)
    lines += ["## Coverage", "", "| rule | meaning | stories |", "|---|---|---|"]
    for rule, shown in found.items():
        lines.append(f"| [{rule}](#{_slug(_rule_heading(rule))}) | {RULES[rule]} | {len(shown)} |")
    return "\n".join(lines) + "\n"


def _told(rule: str, shown: list[Story]) -> Iterator[str]:
    yield from (f"### {_rule_heading(rule)}", "", RULES[rule], "")
    for story in shown:
        where = story.path.relative_to(ROOT).as_posix()
        yield from (
            f"**{story.title[0].upper()}{story.title[1:]}.**",
            f"[{story.path.name}](../../{where}): {summary(story.pipeline)}",
            "",
        )
        yield from ("```yaml", story.text, "```", "")


def _section(rule: str) -> str:
    return rule.split(" ", 1)[0]


def _heading(section: str, name: str) -> str:
    return f"{section}. {name}" if section.isdigit() else name


def _rule_heading(rule: str) -> str:
    return f"Rule {rule}"


def _slug(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    asked = parser.parse_args()
    try:
        text = page(list(stories_in(STORIES)))
    except Incomplete as problem:
        print(problem, file=sys.stderr)
        return 1
    if asked.check:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        if not fresh:
            print(f"{PAGE.relative_to(ROOT)} is not up to date: run scripts/semantics.py", file=sys.stderr)
        return 0 if fresh else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
