"""What a sample of a user's data says, as text or JSON, and as a picture."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from strandline.advise.file_sample import sample_of_files
from strandline.advise.pipeline_inputs import sample_of_pipeline
from strandline.advise.plot import plot as drawn
from strandline.advise.report import Advice, Wishes, advise
from strandline.advise.sample import Columns, Taken
from strandline.advise.suggested_code import command, lines
from strandline.advise.topic_access import Access
from strandline.advise.topic_sample import sample_of_topic
from strandline.cli.actions.run import find
from strandline.errors import InvalidStep
from strandline.model.elements import Duration
from strandline.observe.number_format import count, duration

_TOPIC: Final = "kafka:"


def run_advise(  # noqa: PLR0913 - what the command line says
    source: str, columns: Columns, wishes: Mapping[str, str | None], access: Access, *, of: str | None, most: int,
    as_json: bool, plot: Path | None,
) -> int:  # fmt: skip
    """Looks at the sample, and tells what it says."""
    if plot is not None and plot.suffix.lower() != ".svg":
        raise InvalidStep(f"{plot.name} is no picture that can be drawn", hint="name a file that ends in .svg")
    wanted = Wishes(**{name: None if said is None else Duration.parse(said).ms for name, said in wishes.items()})
    taken = _taken(source, columns, access, of, most)
    wanted = replace(wanted, window=wanted.window or taken.window)
    cores, now = os.cpu_count() or 1, int(time.time() * 1000)
    found = advise(taken.sample, wanted, now=now, cores=cores, known=taken.known, delay=taken.delay)
    if plot is not None:
        plot.write_text(drawn(found), encoding="utf-8")
    if as_json:
        print(json.dumps(to_plain(found), indent=2, ensure_ascii=False))
    else:
        Console(highlight=False).print(told(found))
    return 0


def _taken(source: str, columns: Columns, access: Access, of: str | None, most: int) -> Taken:
    is_topic = source.startswith(_TOPIC)
    if not is_topic and _is_pipeline(source):
        _refuse_access(access, "a pipeline says itself how its source is read")
        return sample_of_pipeline(find(source).root, source, columns, most, of)
    if of is not None:
        raise InvalidStep("only a pipeline has several sources", hint="leave --of out")
    if not columns.time:
        raise InvalidStep("which column says when something happened?", hint="name it with --time")
    if not is_topic:
        _refuse_access(access, "files are read as they are")
        return Taken(sample_of_files(Path(source), columns, most))
    if columns.partition is not None:
        raise InvalidStep("a topic has partitions of its own", hint="leave --partition out")
    return sample_of_topic(source.removeprefix(_TOPIC), access, columns, most)


def _is_pipeline(source: str) -> bool:
    """`job.py`, `job.py:answers` or `package.jobs:answers`, unless a file or a folder is called so."""
    place, colon, name = source.partition(":")
    return place.endswith(".py") or (bool(colon) and name.isidentifier() and not Path(source).exists())


def _refuse_access(access: Access, why: str) -> None:
    if replace(access, servers=Access().servers) != Access():
        raise InvalidStep(why, hint="--format, --schema, --registry, --security and the like are for kafka:TOPIC")


def to_plain(found: Advice) -> dict[str, Any]:
    """All of it, lengths of time in milliseconds."""
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
        "capacity": {**asdict(found.able), "busy": found.able.busy},
        "verdict": asdict(found.verdict),
        "settings": asdict(found.settings),
        "yours": None if found.yours is None else asdict(found.yours),
        "pipeline": lines(found),
        "command": command(found) or None,
    }


def told(found: Advice) -> Group:
    """The same for people, the verdict first."""
    verdict = found.verdict
    parts: list[Any] = [Text.assemble((f"{verdict.way}: ", "bold green"), verdict.why), Text()]
    parts += [_offers(found), Text(), _waits(found), Text(), *(_fact(*fact) for fact in _facts(found))]
    for caution in verdict.cautions:
        parts.append(Text.assemble(("caution  ", "yellow"), caution))
    parts += [Text(), Text(_title(found), "bold"), Text(lines(found).rstrip(), "cyan")]
    if command(found):
        parts.append(Text("\n$ " + command(found), "cyan"))
    return Group(*parts)


def _title(found: Advice) -> str:
    whose = found.sample.origin.pipeline
    return f"what {whose} should say:" if whose else "a pipeline to begin with:"


def _offers(found: Advice) -> Table:
    table = Table("way", "an answer is at worst this old", "and costs", box=None, pad_edge=False)
    for offer in found.verdict.offers:
        table.add_row(offer.way, _said(offer.freshness), offer.cost)
    return table


def _waits(found: Advice) -> Table:
    window = _said(found.late.window)
    table = Table(
        "complete", f"delay for {window} windows", "full answer after a window's end", "answers corrected later",
        "elements behind by", box=None, pad_edge=False,
    )  # fmt: skip
    for wait in found.late.waits:
        unsure = "" if wait.sure else " ?"
        table.add_row(
            f"{wait.share * 100:g} %{unsure}", _said(wait.delay), _said(wait.told_after), f"{wait.corrected:.1%}",
            _said(wait.behind),
        )  # fmt: skip
    return table


def _facts(found: Advice) -> list[tuple[str, str]]:
    late, clocks, able, sample = found.late, found.clocks, found.able, found.sample
    by = f"arrivals are {sample.origin.arrival}" if sample.has_arrivals else "arrivals are not known: as they were read"
    facts = [("sample", f"{sample.rows.height:,} rows of {sample.origin.name}; {by}")]
    facts += [("", note) for note in sample.notes]
    facts.append(
        ("disorder", f"{late.out_of_order:.1%} come after a later one; the last is {_said(late.farthest)} behind")
    )
    if found.yours is not None:
        enough = f"puts {found.yours.in_time:.1%} of the elements into the first full answer"
        facts.append(("yours", f"the delay of {_said(found.yours.delay)} that the pipeline has {enough}"))
    if late.transit is not None:
        half, most, _ = late.transit
        facts.append(("transit", f"half arrive within {_said(half)} of their event, 99 % within {_said(most)}"))
    facts += [("clocks", each) for each in _clocks(found)] or [
        ("clocks", "no element is ahead of time, or a day behind")
    ]
    facts += [("partitions", each) for each in _partitions(found)]
    facts += [("keys", each) for each in _keys(found)]
    rate = (
        f"{count(able.rate)} events/s, {count(able.peak)} in the busiest second; the kernel alone counted this very "
        f"sample at {count(able.kernel)}/s on {able.cores} cores; reading, decoding and Spark come on top"
    )
    facts.append(("rate", rate))
    if clocks.future and found.settings.future:
        facts.append(("", f"future_bound({_said(found.settings.future)}) keeps wrong clocks from moving time on"))
    return facts


def _clocks(found: Advice) -> list[str]:
    clocks = found.clocks
    said = []
    if clocks.future:
        said.append(f"{clocks.future:.2%} are in the future, the farthest by {_said(clocks.farthest_future)}")
    if clocks.past:
        said.append(f"{clocks.past:.2%} are more than a day behind: redelivered, or a clock that stands still")
    return said + [f"the clock of partition {name} is ahead by {_said(by)}" for name, by in clocks.fast[:3]]


def _partitions(found: Advice) -> list[str]:
    places = found.partitions
    if places.idle_after is None:
        return [] if len(places.silences) < 2 else ["too little to say when one is idle"]
    said = [f"{len(places.silences)}; idle_after({_said(places.idle_after)}) is longer than their usual silences"]
    return said + [
        f"{each.name} was silent for {_said(each.longest)} and would have held the watermark back"
        for each in places.silences
        if each.name in places.idle[:3]
    ]


def _keys(found: Advice) -> list[str]:
    keys = found.keys
    if keys is None:
        return ["none was named: --key says whose a row is"]
    top, share = keys.top[0]
    spread = f"the fullest of {keys.groups} key groups gets {keys.skew:.1f} × the mean"
    said = [f"{count(keys.many)}; the heaviest, {top}, has {share:.1%}; {spread}"]
    if keys.is_hot:
        said.append(
            "a hot key costs nothing where elements are combined before the shuffle, as they are for sums, counts, "
            "quantiles; where each is kept (lists, evictors, a UserAggregate), hot_keys(salt=…) spreads it"
        )
    if keys.bursts is not None:
        said.append(f"they come in bursts: sl.session({_said(keys.bursts)}) would follow them")
    return said


def _fact(title: str, said: str) -> Text:
    return Text.assemble((f"{title:<11}", "bold"), said)


def _said(ms: float) -> str:
    return duration(ms / 1000)
