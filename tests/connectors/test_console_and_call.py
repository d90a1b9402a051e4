"""The console shows what comes out and obeys nothing in it; a function gets each batch with a name that stays."""

import io
import json
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.connectors.console import OpenConsole
from strandline.connectors.function_sink import BatchPart
from strandline.errors import InvalidStep, SinkError, SinkUnavailable
from strandline.kernel.blocks.block import END, START
from strandline.kernel.output import Output
from strandline.kernel.window.panes import INDEX, RETRACTION
from strandline.plan.compile import to_stages
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.ports.ledger import LedgerEntry
from tests.plan.endpoints import scores

ENTRY = LedgerEntry("mine", 1, 3, "digest")
PANES = pl.DataFrame({
    "team": ["red", "[bold]x[/] \x1b[2J\n", "red"], START: [10_000, 0, 0], END: [20_000, 10_000, 10_000],
    "total": [7, 5, None], INDEX: [0, 0, 0], RETRACTION: [False, False, True],
})  # fmt: skip
OUTPUT = Output(PANES, pl.DataFrame({"team": ["late"]}), pl.DataFrame({"@raw": [b"\xff"], "@reason": ["undecodable"]}))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_where_nobody_looks_each_row_is_a_line_that_can_be_read() -> None:
    out = io.StringIO()
    OpenConsole(20, out).write(OUTPUT, ENTRY)
    lines = [line.split(" ", 1) for line in out.getvalue().splitlines()]
    assert [part for part, _ in lines] == ["panes", "panes", "panes", "late", "dead"]
    told = [json.loads(text) for _, text in lines]
    assert told[0]["window_start"] == "1970-01-01T00:00:10.000000Z"
    assert [row["team"] for row in told[:4]] == [*PANES["team"], "late"]
    assert (told[0]["total"], told[0]["batch"], told[4]["raw"]) == (7, 3, "/w==")


def test_in_a_terminal_a_batch_is_a_table_and_its_texts_steer_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    out = Terminal()
    OpenConsole(2, out).write(OUTPUT, ENTRY)
    shown = out.getvalue()
    assert "batch 3: 3 panes, the first 2" in shown
    assert "batch 3: 1 late" in shown
    assert "[bold]x[/] ·[2J·" in shown
    assert "\x1b[2J" not in shown
    assert "00:00:10.000000Z" in shown


def test_a_console_that_nobody_reads_ends_the_job_with_a_word() -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(SinkError, match="nobody reads what the console shows"):
        OpenConsole(2, Closed()).write(OUTPUT, ENTRY)


def test_a_function_gets_each_part_with_an_identity_that_stays() -> None:
    taken: list[tuple[list[Any], BatchPart]] = []
    sink = sl.call(lambda rows, batch: taken.append((rows["team"].to_list() if "team" in rows else [], batch)))
    at_work = sink.open(Deliver(0, sink, Delivery.AT_LEAST_ONCE, ("team",)))
    for _ in range(2):
        assert at_work.write(OUTPUT, ENTRY).fresh
    assert taken[:3] == taken[3:]
    assert [batch.key for _, batch in taken[:3]] == ["mine/3/panes", "mine/3/late", "mine/3/dead"]
    assert taken[0] == (PANES["team"].to_list(), BatchPart("mine", 3, "panes", "digest"))
    at_work.write(Output(), ENTRY)
    assert len(taken) == 6


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (ConnectionResetError("gone"), SinkUnavailable),
        (TimeoutError("slow"), SinkUnavailable),
        (KeyError("x"), SinkError),
    ],
)
def test_a_function_that_raises_makes_the_batch_wait_or_ends_the_job(problem: Exception, kind: type[Exception]) -> None:
    def send(_: pl.DataFrame, __: BatchPart) -> None:
        raise problem

    sink = sl.call(send, name="my sink")
    with pytest.raises(kind, match="my sink") as told:
        sink.open(Deliver(0, sink, Delivery.AT_LEAST_ONCE, None)).write(OUTPUT, ENTRY)
    assert type(told.value) is kind
    assert type(problem).__name__ in str(told.value)


@pytest.mark.parametrize("sink", [sl.console(), sl.call(print)])
def test_neither_promises_more_than_at_least_once(sink: Any) -> None:
    panes = scores().event_time("at", sl.monotone()).key_by("team").window(sl.tumbling(seconds=10))
    told = panes.aggregate(total=sl.sum("score"))
    with pytest.raises(InvalidStep, match="cannot deliver exactly once"):
        to_stages(told.write(sink).root)
    to_stages(told.write(sink, delivery="at_least_once").root)
    at_work = sink.open(Deliver(0, sink, Delivery.AT_LEAST_ONCE, None))
    for act in (at_work.commit, at_work.mark):
        with pytest.raises(SinkError, match="keeps no ledger"):
            act(OUTPUT, ENTRY)
    assert (at_work.latest("mine"), at_work.claim("mine")) == (None, 1)
    at_work.close()


def test_what_cannot_be_shown_or_called_is_refused() -> None:
    with pytest.raises(InvalidStep, match="0 rows of a batch are none"):
        sl.console(rows=0)
    with pytest.raises(InvalidStep, match="cannot be called"):
        sl.call("send")  # type: ignore[arg-type]
