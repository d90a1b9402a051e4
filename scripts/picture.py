"""Plot a demo run: event time against processing time, with the elements, the watermark and the panes of one team.

usage: .venv/bin/python scripts/picture.py RUN_FOLDER [--team red] [--out docs/pictures/event-time.svg]
"""

import argparse
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from strandline.checkpoint.job_folder import Checkpoint
from strandline.connectors.scores import Scores, records, schedule

COLOURS = {"early": "#3b82c4", "on_time": "#2e9e6b", "late": "#d98a1f"}
INK, FAINT = "#33383f", "#c9ced6"


class Run(NamedTuple):
    """The data of a run, in seconds since its stream started."""

    dots: list[tuple[float, float]]
    marks: list[tuple[float, float]]
    panes: list[tuple[float, float, float, str, int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--team", default="red")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/event-time.svg"))
    given = parser.parse_args()
    run = read_run(given.folder, given.team)
    # A fixed salt, so that the same run gives the same file.
    mpl.rcParams.update({"svg.hashsalt": "strandline", "svg.fonttype": "none", "font.family": "sans-serif"})
    figure, axes = plt.subplots(figsize=(8.6, 6.4))
    draw(axes, run, given.team)
    figure.tight_layout()
    figure.savefig(given.out, metadata={"Date": None}, dpi=160)


def read_run(folder: Path, team: str) -> Run:
    """Read the elements from the seed, and everything else from the tables that the job wrote."""
    options = json.loads((folder / "run.json").read_text())
    source = Scores(options["seed"], options["events"], options["rate"])
    origin = int(Checkpoint(folder / "checkpoint").latest_offsets()["origin"])
    with sqlite3.connect(folder / "scores.db") as connection:
        ledger = connection.execute(
            "SELECT batch, clock_ms, watermark_ms FROM strandline_ledger ORDER BY batch"
        ).fetchall()
        rows = connection.execute(
            "SELECT window_start, window_end, timing, total, batch FROM totals WHERE team = ? AND NOT retraction",
            [team],
        ).fetchall()
    clocks = {batch: (clock - origin) / 1000 for batch, clock, _ in ledger}
    end = max(clocks.values())
    marks = [((mark - origin) / 1000, clocks[batch]) for batch, _, mark in ledger if abs(mark) < 2**62]
    panes = [
        (_since(s, origin), _since(e, origin), clocks[batch], timing, total) for s, e, timing, total, batch in rows
    ]
    dots = [dot for number in range(source.width) for dot in _dots(source, number, origin, team)]
    return Run([(at, seen) for at, seen in dots if seen <= end], marks, panes)


def _dots(source: Scores, partition: int, origin: int, team: str) -> list[tuple[float, float]]:
    emitted = schedule(source, partition)
    found = []
    for moment, record in zip(emitted, records(source, partition, 0, source.events, origin), strict=True):
        try:
            event = json.loads(record)
            if event["team"] == team:
                at = datetime.fromisoformat(event["at"]).timestamp() - origin / 1000
                found.append((at, float(moment) / 1000))
        except (ValueError, KeyError):
            continue
    return found


def _since(text: str, origin: int) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() - origin / 1000


def draw(axes: Axes, run: Run, team: str) -> None:
    starts = sorted({start for start, *_ in run.panes})
    left, right = max(starts[0] - 1, -6), max(end for _, end, *_ in run.panes) + 1
    top = max(clock for _, _, clock, *_ in run.panes) + 2
    for start in starts:
        axes.axvline(start, color=FAINT, linewidth=0.8, zorder=0)
    shown = [(at, seen) for at, seen in run.dots if at >= left]
    times, moments = zip(*shown, strict=True)
    axes.scatter(times, moments, s=4, color="#8b93a0", alpha=0.45, linewidths=0, label="elements", rasterized=True)
    axes.plot(
        [left, right], [left, right], color=FAINT, linestyle="--", linewidth=1.2, label="ideal: seen as it happens"
    )
    axes.plot(*zip(*run.marks, strict=True), color="#c2413b", linewidth=2, label="watermark")
    for start, end, clock, timing, total in run.panes:
        colour = COLOURS[timing]
        axes.plot(
            [start + 0.15, end - 0.15], [clock, clock], color=colour, linewidth=5, solid_capstyle="butt", alpha=0.9
        )
        axes.text((start + end) / 2, clock + 0.35, f"{total}", ha="center", va="bottom", fontsize=7, color=colour)
    for timing, colour in COLOURS.items():
        axes.plot([], [], color=colour, linewidth=5, label=f"{timing.replace('_', '-')} pane, with its total")
    axes.set(xlim=(left, right), ylim=(-1, top), xlabel="event time: seconds since the stream started")
    axes.set_ylabel("processing time: seconds since the stream started")
    axes.set_title(f"Scores of team {team} in five-second windows, as the demo saw them", color=INK, fontsize=11)
    axes.legend(loc="upper left", fontsize=8, frameon=True, framealpha=0.95, edgecolor=FAINT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=8)


if __name__ == "__main__":
    main()
