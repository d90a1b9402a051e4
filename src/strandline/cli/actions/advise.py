"""Sample a user's data and print recommended settings as text, JSON or a plot: `strandline advise`."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from strandline.advise.file_sample import sample_of_files
from strandline.advise.pipeline_inputs import sample_of_pipeline
from strandline.advise.plot import plot as lateness_plot
from strandline.advise.report import Advice, Requirements, advise
from strandline.advise.sample import Columns, SampledSource
from strandline.advise.suggested_code import command, lines
from strandline.advise.topic_access import Access
from strandline.advise.topic_sample import sample_of_topic
from strandline.cli.actions.run import find
from strandline.cli.terminal import printable, safe_console
from strandline.errors import InvalidStep
from strandline.model.elements import Duration
from strandline.observe.number_format import count, duration

_TOPIC: Final = "kafka:"


def run_advise(  # noqa: PLR0913 - one parameter for each option
    source: str, columns: Columns, wishes: Mapping[str, str | None], access: Access, *, of: str | None, most: int,
    as_json: bool, plot: Path | None,
) -> int:  # fmt: skip
    """Sample the source and print the advice."""
    if plot is not None and plot.suffix.lower() != ".svg":
        raise InvalidStep(f"{plot.name} is not an SVG file", hint="name a file that ends in .svg")
    wanted = Requirements(**{name: None if text is None else Duration.parse(text).ms for name, text in wishes.items()})
    taken = _sample(source, columns, access, of, most)
    wanted = replace(wanted, window=wanted.window or taken.window)
    cores, now = os.cpu_count() or 1, int(time.time() * 1000)
    found = advise(taken.sample, wanted, now=now, cores=cores, known=taken.known, delay=taken.delay)
    if plot is not None:
        plot.write_text(lateness_plot(found), encoding="utf-8")
    if as_json:
        print(json.dumps(to_plain(found), indent=2))
    else:
        _print_advice(found)
    return 0


def _sample(source: str, columns: Columns, access: Access, of: str | None, most: int) -> SampledSource:
    is_topic = source.startswith(_TOPIC)
    if not is_topic and _is_pipeline(source):
        _refuse_access(access, "a pipeline defines how its source is read")
        return sample_of_pipeline(find(source).root, source, columns, most, of)
    if of is not None:
        raise InvalidStep("--of needs a pipeline as the source", hint="leave --of out")
    if not columns.time:
        raise InvalidStep("the event time column is not given", hint="name it with --time")
    if not is_topic:
        _refuse_access(access, "files are read as they are")
        return SampledSource(sample_of_files(Path(source), columns, most))
    if columns.partition is not None:
        raise InvalidStep("a topic has partitions of its own", hint="leave --partition out")
    return sample_of_topic(source.removeprefix(_TOPIC), access, columns, most)


def _is_pipeline(source: str) -> bool:
    """Recognize `job.py`, `job.py:answers` and `package.jobs:answers`, unless a file or folder has that name."""
    place, colon, name = source.partition(":")
    return place.endswith(".py") or (bool(colon) and name.isidentifier() and not Path(source).exists())


def _refuse_access(access: Access, why: str) -> None:
    if replace(access, servers=Access().servers) != Access():
        raise InvalidStep(why, hint="--format, --schema, --registry, --security etc. are for kafka:TOPIC")


def to_plain(found: Advice) -> dict[str, Any]:
    """Return the advice as plain values, durations in milliseconds."""
    sample = found.sample
    return {
        "source": sample.origin.name,
        "rows": sample.rows.height,
        "without_time": sample.untimed,
        "arrivals": sample.origin.arrival or None,
        "notes": list(sample.notes),
        "lateness": asdict(found.late),
        "clocks": asdict(found.clocks),
        "partitions": asdict(found.partitions),
        "keys": None if found.keys is None else {**asdict(found.keys), "is_hot": found.keys.is_hot},
        "capacity": {**asdict(found.rates), "busy": found.rates.busy},
        "verdict": asdict(found.verdict),
        "settings": asdict(found.settings),
        "yours": None if found.current is None else asdict(found.current),
        "pipeline": lines(found),
        "command": command(found) or None,
    }


def _print_advice(found: Advice) -> None:
    """Print the advice, the verdict first. Code to paste is never wrapped."""
    verdict = found.verdict
    parts: list[Any] = [Text.assemble((f"{verdict.way}: ", "bold green"), verdict.why), Text()]
    parts += [_options_table(found), Text(), _delay_table(found), Text(), *(_fact(*fact) for fact in _facts(found))]
    parts += [Text.assemble(("caution  ", "yellow"), printable(caution)) for caution in verdict.cautions]
    console = safe_console(highlight=False)
    console.print(Group(*parts, Text(), Text(_title(found), "bold")))
    for code in (lines(found).rstrip(), f"\n$ {command(found)}" if command(found) else ""):
        if code:
            console.print(Text(code, "cyan"), soft_wrap=True)


def _title(found: Advice) -> str:
    pipeline = found.sample.origin.pipeline
    return f"settings for {pipeline}:" if pipeline else "a pipeline to start with:"


def _options_table(found: Advice) -> Table:
    table = Table("option", "maximum age of a result", "cost", box=None, pad_edge=False)
    for offer in found.verdict.offers:
        table.add_row(offer.way, _duration(offer.freshness), offer.cost)
    return table


def _delay_table(found: Advice) -> Table:
    window = _duration(found.late.window)
    table = Table(
        "complete", f"delay for {window} windows", "complete result after window end", "results corrected later",
        "delay for elements", box=None, pad_edge=False,
    )  # fmt: skip
    for wait in found.late.waits:
        unsure = "" if wait.sure else " ?"
        table.add_row(
            f"{wait.share * 100:g} %{unsure}", _duration(wait.delay), _duration(wait.told_after),
            f"{wait.corrected:.1%}", _duration(wait.behind),
        )  # fmt: skip
    return table


def _facts(found: Advice) -> list[tuple[str, str]]:
    late, clocks, rates, sample = found.late, found.clocks, found.rates, found.sample
    by = (
        f"arrival times are {sample.origin.arrival}"
        if sample.has_arrivals
        else "arrival times are unknown: arrival order is the order of the rows"
    )
    facts = [("sample", f"{sample.rows.height:,} rows of {sample.origin.name}; {by}")]
    facts += [("", note) for note in sample.notes]
    facts.append(
        (
            "disorder",
            f"{late.out_of_order:.1%} arrive after a later one; the latest is {_duration(late.farthest)} behind",
        )
    )
    if found.current is not None:
        share = f"puts {found.current.in_time:.1%} of the elements into the on-time result"
        facts.append(("current", f"the pipeline's delay of {_duration(found.current.delay)} {share}"))
    if late.transit is not None:
        half, most, _ = late.transit
        facts.append(("transit", f"half arrive within {_duration(half)} of their event, 99 % within {_duration(most)}"))
    facts += [("clocks", each) for each in _clocks(found)] or [
        ("clocks", "no element is in the future, or more than a day behind")
    ]
    facts += [("partitions", each) for each in _partitions(found)]
    facts += [("keys", each) for each in _keys(found)]
    rate = (
        f"{count(rates.rate)} events/s, {count(rates.peak)} in the busiest second; the kernel alone counts this "
        f"sample at {count(rates.kernel)}/s on {rates.cores} cores; reading, decoding and Spark are not included"
    )
    facts.append(("rate", rate))
    if clocks.future and found.settings.future:
        facts.append(
            ("", f"future_bound({_duration(found.settings.future)}) keeps wrong clocks from advancing the watermark")
        )
    return facts


def _clocks(found: Advice) -> list[str]:
    clocks = found.clocks
    facts = []
    if clocks.future:
        facts.append(f"{clocks.future:.2%} are in the future, the farthest by {_duration(clocks.farthest_future)}")
    if clocks.past:
        facts.append(f"{clocks.past:.2%} are more than a day behind: redelivered, or from a stopped clock")
    return facts + [f"the clock of partition {name} is ahead by {_duration(by)}" for name, by in clocks.fast[:3]]


def _partitions(found: Advice) -> list[str]:
    places = found.partitions
    if places.idle_after is None:
        return [] if len(places.silences) < 2 else ["too few elements to tell when a partition is idle"]
    facts = [f"{len(places.silences)}; idle_after({_duration(places.idle_after)}) is longer than their usual gaps"]
    return facts + [
        f"{each.name} was silent for {_duration(each.longest)} and would have held the watermark back"
        for each in places.silences
        if each.name in places.idle[:3]
    ]


def _keys(found: Advice) -> list[str]:
    keys = found.keys
    if keys is None:
        return ["no key is given: name its columns with --key"]
    top, share = keys.top[0]
    spread = f"the fullest of {keys.groups} key groups gets {keys.skew:.1f} × the mean"
    facts = [f"{count(keys.many)}; the most frequent, {top}, has {share:.1%}; {spread}"]
    if keys.is_hot:
        facts.append(
            "a hot key costs nothing where elements are pre-aggregated before the shuffle, as for sums, counts and "
            "quantiles; where every element is kept (lists, evictors, a UserAggregate), hot_keys(salt=…) spreads it"
        )
    if keys.bursts is not None:
        facts.append(f"keys arrive in bursts: sl.session({_duration(keys.bursts)}) fits them")
    return facts


def _fact(title: str, text: str) -> Text:
    return Text.assemble((f"{title:<11}", "bold"), printable(text))


def _duration(ms: float) -> str:
    return duration(ms / 1000)
