"""A running job in the terminal: as lines, and as a live panel."""

from io import StringIO

import polars as pl
import pytest
from rich.console import Console

from strandline.cli.live_view import LiveView, PlainView
from strandline.kernel.blocks.block import END, START
from strandline.kernel.output import Counts, Output
from strandline.kernel.watermarks import FOREVER, NEVER, PartitionProgress, Progress
from strandline.kernel.window.panes import INDEX, RETRACTION, TIMING
from strandline.spark.delivery.deliver import Delivered

PANES = pl.DataFrame(
    {
        "team": ["red", "red"],
        "total": [5, 8],
        START: [0, 0],
        END: [10_000, 10_000],
        TIMING: ["on_time", "late"],
        INDEX: [0, 1],
        RETRACTION: [True, False],
    }
)


def delivered(batch: int, watermark: int = 12_000, panes: pl.DataFrame | None = None, **counts: int) -> Delivered:
    progress = Progress(watermark, 15_000, {"2": PartitionProgress(), "3": PartitionProgress(idle=True)})
    output = Output(panes, progress=progress, counts=Counts(**counts))
    return Delivered(batch, output, {}, repeated=False)


def test_plain_lines_show_times_counts_and_every_pane() -> None:
    file = StringIO()
    view = PlainView(Console(file=file))
    view.say("Starting")
    view.delivered(delivered(0, NEVER))
    view.delivered(delivered(1, panes=PANES, read=5, contributed=3, late=1, dead=1))
    view.delivered(delivered(2, FOREVER, read=5, contributed=5))
    view.close()
    assert file.getvalue().splitlines() == [
        "Starting",
        "batch 0: watermark not known yet, clock 00:00:15; 0 in = 0 contributed + 0 late + 0 dead letters",
        "batch 1: watermark 00:00:12, clock 00:00:15; 5 in = 3 contributed + 1 late + 1 dead letters",
        "  [00:00:00, 00:00:10) retracts team red, total 5; on_time, pane 0",
        "  [00:00:00, 00:00:10) emits team red, total 8; late, pane 1",
        "batch 2: watermark at the end, clock 00:00:15; 10 in = 8 contributed + 1 late + 1 dead letters",
    ]


def drawn(*batches: Delivered, message: str = "") -> str:
    """Return the last panel as text."""
    console = Console(file=StringIO(), force_terminal=True, width=110, height=40)
    view = LiveView(console)
    if message:
        view.say(message)
    for batch in batches:
        view.delivered(batch)
    view.close()
    paper = Console(file=StringIO(), width=110)
    paper.print(view._draw())
    assert isinstance(paper.file, StringIO)
    return paper.file.getvalue()


def test_the_panel_before_the_first_batch() -> None:
    printed = drawn(message="Starting Spark")
    assert "Starting Spark" in printed
    assert "no watermark yet" in printed
    assert "0 in = 0 contributed" in printed


def test_the_panel_shows_watermark_clock_idle_partitions_and_panes() -> None:
    printed = drawn(delivered(0, panes=PANES, read=5, contributed=3, late=1, dead=1))
    assert "watermark 00:00:12" in printed
    assert "idle: partition 3" in printed
    assert "5 in = 3 contributed + 1 late + 1 dead letters" in printed
    assert printed.count("00:00:00 – 00:00:10") == 2


def test_the_panel_at_the_end_of_the_stream() -> None:
    assert "at the end of time: every window is closed" in drawn(delivered(0, read=1), delivered(1, FOREVER))


def test_a_watermark_of_years_ago_is_shown_in_days_and_not_in_millions_of_seconds() -> None:
    printed = drawn(delivered(0, 1_714_564_800_000, read=1))
    assert " d behind" in printed
    assert " s behind" not in printed


@pytest.mark.parametrize("watermark", [NEVER, -(10**12), 12_000, 10**13, FOREVER])
def test_the_panel_can_be_drawn_for_any_watermark(watermark: int) -> None:
    assert "strandline" in drawn(delivered(0, read=1), delivered(1, watermark))


def test_markup_and_control_characters_in_values_are_shown_as_text() -> None:
    hostile = PANES.with_columns(team=pl.lit("[/bold]\x1b[2J"))
    file = StringIO()
    view = PlainView(Console(file=file))
    view.delivered(delivered(0, panes=hostile))
    assert r"emits team [/bold]\x1b[2J, total 8" in file.getvalue()
    shown = drawn(delivered(0, panes=hostile), message="[/bold]\x1b[2J")
    assert "\x1b[2J" not in shown
    assert shown.count(r"[/bold]\x1b[2J") == 3
