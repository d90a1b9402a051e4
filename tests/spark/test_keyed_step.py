"""A whole stream carried by hand through the job's own code, with no Spark in between."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.cli.demo.demo import WINDOW_SECONDS, pipeline
from strandline.cli.demo.recount import Recount, recount
from strandline.connectors import scores
from strandline.connectors.scores import Scores, ScoresReader
from strandline.execution.batch import Batch
from strandline.execution.block_addresses import address
from strandline.kernel.blocks.block import Block, pack
from strandline.kernel.output import Counts
from strandline.kernel.state.slice_store import read_index
from strandline.kernel.watermarks import FOREVER, NEVER, Control, control_to_facts
from strandline.plan.compile import to_stages
from strandline.plan.stages import Stages
from strandline.ports.codecs import RAW
from strandline.ports.ledger import LedgerEntry
from strandline.ports.sinks import OpenSink, SparkSink
from tests.plan.endpoints import PaperSink
from tests.spark.by_hand import Carrier, MapState, Raw, frame_of, packed, rows

ORIGIN = 1_700_000_000_000


def batches(source: Scores, monkeypatch: pytest.MonkeyPatch, every: int) -> Iterator[tuple[list[list[Raw]], int]]:
    """The batches of a stream whose driver looks at the clock every so often: for each task its rows, and the clock."""
    now = ORIGIN
    monkeypatch.setattr(scores, "_now", lambda: now)
    reader = ScoresReader(source)
    start = reader.initialOffset()
    while True:
        end = reader.latestOffset(start, None)
        if end != start:
            tasks = []
            for partition in reader.partitions(start, end):
                found: list[Any] = []
                for batch in reader.read(partition):
                    found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
                tasks.append(found)
            yield tasks, now
        elif now > ORIGIN + source.events * 1_000 // source.rate:
            return
        start, now = end, now + every


def open_sink(stages: Stages) -> OpenSink:
    sink: SparkSink = stages.outputs[0].sink  # type: ignore[assignment]
    return sink.open(stages.outputs[0])


def carried(
    source: Scores, database: Path, monkeypatch: pytest.MonkeyPatch, every: int, *, combines: bool = True
) -> tuple[Recount, Counts]:
    """The demo's pipeline over a stream, and its recount."""
    stages = to_stages(pipeline(source, database).root)
    carrier, counts = Carrier(stages, combines=combines), Counts()
    sink = open_sink(stages)
    epoch = sink.claim("mine")
    watermark = None
    for number, (tasks, clock) in enumerate(batches(source, monkeypatch, every)):
        output = carrier.carry(tasks, clock)
        counts += output.counts
        watermark = output.progress.watermark
        sink.commit(output, LedgerEntry("mine", epoch, number, str(number)))
    assert watermark == FOREVER
    assert all(list(state.held) == ["index"] for state in carrier.groups.values())
    sink.close()
    return recount(source, ORIGIN + every, database, WINDOW_SECONDS), counts


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "every"), [(1, 1_100), (2, 2_500), (3, 4_000), (4, 9_000), (5, 60_000)])
def test_totals_late_and_dead_together_are_what_a_batch_job_finds(
    seed: int, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Scores(seed, events=3_000, rate=200)
    result, counts = carried(source, tmp_path / "scores.db", monkeypatch, every)
    assert result.disagreements == []
    assert result.agrees
    assert counts.read == 3_000
    assert counts.dead == result.dead > 0


@pytest.mark.slow
def test_a_stream_without_a_horizon_gives_the_same_totals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is combined before the shuffle; it must make no difference to anyone."""
    source = Scores(6, events=1_500, rate=200)
    combined, counted = carried(source, tmp_path / "combined.db", monkeypatch, 2_000)
    plain, counted_plainly = carried(source, tmp_path / "plain.db", monkeypatch, 2_000, combines=False)
    assert plain == combined
    assert counted == counted_plainly


@pytest.mark.slow
def test_a_batch_played_again_from_the_same_state_says_and_writes_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Scores(7, events=1_000, rate=200)
    stages = to_stages(pipeline(source, Path("never opened")).root)
    carrier = Carrier(stages)
    for tasks, clock in batches(source, monkeypatch, 1_000):
        frames = [frame_of(raw) for raw in tasks]
        sent = [block for number, frame in enumerate(frames) for block in packed(stages, 0, frame, clock, {}, number)]
        for group in range(stages.groups):
            to = address(stages.steps[0], group)
            blocks = [data for number, data in sent if number == to]
            state = carrier.groups.setdefault(to, MapState())
            before = dict(state.held)
            batch = Batch(clock)
            said, wrote = carrier.step(to, blocks, 1, batch), dict(state.held)
            state.held = dict(before)
            assert carrier.step(to, reversed(blocks), 1, batch) == said
            assert state.held == wrote


@pytest.mark.slow
def test_every_key_group_comes_to_the_same_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Scores(8, events=400, rate=100)
    stages = to_stages(pipeline(source, Path("never opened")).root)
    carrier = Carrier(stages)
    for tasks, clock in batches(source, monkeypatch, 1_000):
        carrier.carry(tasks, clock)
        first, *others = [read_index(state.held).progress for state in carrier.groups.values()]
        assert len(others) == stages.groups - 1
        assert all(progress == first for progress in others)


def test_a_dead_letter_comes_out_with_the_batch_that_read_it() -> None:
    panes = sl.read(sl.scores()).event_time("at", sl.monotone()).key_by("team").window(sl.tumbling(seconds=10))
    stages = to_stages(panes.aggregate(plays=sl.count()).write(PaperSink()).root)
    output = Carrier(stages).carry([rows(b"?"), rows(b"!", partition="1")], 0)
    assert output.dead is not None
    assert sorted(output.dead[RAW].to_list()) == [b"!", b"?"]
    assert output.counts == Counts(read=2, dead=2)


def test_partitions_that_only_the_driver_knows_hold_the_watermark_until_they_are_heard_or_idle() -> None:
    idling = sl.bounded(seconds=1).idle_after(seconds=60)
    counts = sl.read(sl.scores()).event_time("at", idling).key_by("team").window(sl.tumbling(seconds=10))
    stages = to_stages(counts.aggregate(plays=sl.count()).write(PaperSink()).root)
    record = b'{"team": "red", "user": "u1", "score": 5, "at": "1970-01-01T00:01:00Z"}'

    def carry(carrier: Carrier, clock: int, *partitions: str) -> int:
        output = carrier.carry([rows(record, partition=each, first=clock) for each in partitions], clock)
        return output.progress.watermark

    first = stages.scans[0].source.partitions
    late = Carrier(stages, known={0: ("8", "9")})
    assert carry(late, 0, *first) == NEVER
    assert carry(late, 1, "8") == NEVER
    assert carry(late, 2, "9") == 58_999
    silent = Carrier(stages, known={0: ("8", "9")})
    assert carry(silent, 0, *first) == NEVER
    assert carry(silent, 60_000, *first) == NEVER
    assert carry(silent, 60_001, *first) == 58_999
    assert {*silent.steps[0].progress.idle} == {"8", "9"}


def test_every_key_group_knows_the_same_partitions_and_one_sends_them_to_the_driver() -> None:
    stages = to_stages(
        sl.read(sl.scores()).event_time("at", sl.bounded(seconds=1)).key_by("team").window(sl.tumbling(seconds=10))
        .aggregate(plays=sl.count()).write(PaperSink()).root
    )  # fmt: skip
    names = tuple(f"topic-{number}" for number in range(1_000))
    few, many = (Carrier(stages, known={0: names[:each]}) for each in (10, 1_000))
    for carrier in (few, many):
        carrier.carry([rows(None)], 7)
        states = [read_index(state.held).progress for state in carrier.groups.values()]
        assert len(states) == stages.groups
        assert all(each == carrier.steps[0].progress for each in states)
    assert {*many.steps[0].progress.partitions} >= {*names}
    beat = [pack(Block(facts={"control": control_to_facts(Control(8)), "from": "tick", "counts": {}}))]
    sent = [
        len(data) for to in list(many.groups) for _, data in many.step(to, beat, 1, Batch(8, partitions={0: names}))
    ]
    assert sum(sent) < 100 * len(names)
