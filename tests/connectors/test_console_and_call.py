"""The console prints batches safely; a function gets each batch with a stable identity."""

import io
import json
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.connectors.console import OpenConsole
from strandline.connectors.function_sink import BatchPart
from strandline.errors import InvalidArgument, InvalidStep, SinkError, SinkUnavailable
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


def test_without_a_terminal_each_row_is_a_line_of_json() -> None:
    out = io.StringIO()
    OpenConsole(20, out).write(OUTPUT, ENTRY)
    lines = [line.split(" ", 1) for line in out.getvalue().splitlines()]
    assert [part for part, _ in lines] == ["panes", "panes", "panes", "late", "dead"]
    facts = [json.loads(text) for _, text in lines]
    assert facts[0]["window_start"] == "1970-01-01T00:00:10.000000Z"
    assert [row["team"] for row in facts[:4]] == [*PANES["team"], "late"]
    assert (facts[0]["total"], facts[0]["batch"], facts[4]["raw"]) == (7, 3, "/w==")


def test_on_a_terminal_a_batch_is_a_table_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    out = Terminal()
    OpenConsole(2, out).write(OUTPUT, ENTRY)
    shown = out.getvalue()
    assert "batch 3: 3 panes, the first 2" in shown
    assert "batch 3: 1 late" in shown
    assert "[bold]x[/] \\x1b[2J\\n" in shown
    assert "\x1b[2J" not in shown
    assert "00:00:10.000000Z" in shown


def test_a_console_that_cannot_be_written_ends_the_job_with_an_error() -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(SinkError, match="the console's output cannot be written"):
        OpenConsole(2, Closed()).write(OUTPUT, ENTRY)


def test_a_function_gets_each_part_with_a_stable_identity() -> None:
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
def test_a_function_that_raises_delays_the_batch_or_ends_the_job(problem: Exception, kind: type[Exception]) -> None:
    def send(_: pl.DataFrame, __: BatchPart) -> None:
        raise problem

    sink = sl.call(send, name="my sink")
    with pytest.raises(kind, match="my sink") as raised:
        sink.open(Deliver(0, sink, Delivery.AT_LEAST_ONCE, None)).write(OUTPUT, ENTRY)
    assert type(raised.value) is kind
    assert type(problem).__name__ in str(raised.value)


@pytest.mark.parametrize("sink", [sl.console(), sl.call(print)])
def test_both_sinks_offer_at_least_once_only(sink: Any) -> None:
    panes = scores().event_time("at", sl.monotone()).key_by("team").window(sl.tumbling(seconds=10))
    result = panes.aggregate(total=sl.sum("score"))
    with pytest.raises(InvalidStep, match="cannot deliver exactly once"):
        to_stages(result.write(sink).root)
    to_stages(result.write(sink, delivery="at_least_once").root)
    at_work = sink.open(Deliver(0, sink, Delivery.AT_LEAST_ONCE, None))
    for act in (at_work.commit, at_work.mark):
        with pytest.raises(SinkError, match="keeps no ledger"):
            act(OUTPUT, ENTRY)
    assert (at_work.latest("mine"), at_work.claim("mine")) == (None, 1)
    at_work.close()


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(InvalidStep, match="rows is 0"):
        sl.console(rows=0)
    with pytest.raises(InvalidArgument, match="cannot take 'send' as function"):
        sl.call("send")  # type: ignore[arg-type]
