"""A job as a process of its own that notes what each batch delivers, byte by byte, and can die around a commit.

    python replaying.py FOLDER [before | after]

It dies with all of its Spark before or after its sink commits the first batch that has something to say of enough
elements; without such a wish it runs to its end.
"""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Final

import strandline as sl
from strandline.connectors.sql.sink import OpenSql, Table
from strandline.connectors.sql.sqlite import Sqlite, SqliteFile
from strandline.kernel.blocks.block import Block, pack
from strandline.kernel.output import Output, counts_to_facts
from strandline.kernel.watermarks import progress_to_facts
from strandline.plan.stages import Deliver
from strandline.ports.ledger import LedgerEntry, Written
from strandline.spark.job import Job

EVENTS: Final = 1_500
FIRST: Final = 3
"""No batch before this one is fatal: there is state to go on from."""


class Noting(Sqlite):
    """SQLite, and beside it a file of notes."""

    def open(self, output: Deliver) -> OpenSql:
        return OpenNoting(SqliteFile(self.path), self.table, output, self.name)


class OpenNoting(OpenSql):
    """A line for every batch that is handed over, whether or not it is committed in the end."""

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        note = {"batch": entry.batch, "epoch": entry.epoch, "digest": digest(output), "read": output.counts.read}
        with (FOLDER / "notes").open("a") as notes:
            notes.write(json.dumps(note) + "\n")
        fatal = entry.batch >= FIRST and output.panes is not None and output.counts.read > 0
        die_if(fatal and WISH == "before")
        written = super().commit(output, entry)
        die_if(fatal and WISH == "after")
        return written


def digest(output: Output) -> str:
    """Of all that a batch says."""
    said = {"panes": output.panes, "late": output.late, "dead": output.dead}
    facts = {
        "progress": progress_to_facts(output.progress),
        "counts": counts_to_facts(output.counts),
        "output_watermark": output.output_watermark,
        "rows": output.rows,
    }
    frames = {name: frame for name, frame in said.items() if frame is not None}
    return hashlib.sha256(pack(Block(frames, facts))).hexdigest()


def die_if(fatal: bool) -> None:
    if fatal:
        os.killpg(0, signal.SIGKILL)


def pipeline() -> sl.Pipeline:
    """Aggregates of every kind that is kept: in rows, as items, as sketches; and what was said, to be taken back."""
    return (
        sl.read(sl.scores(seed=31, events=EVENTS, rate=150))
        .event_time("at", sl.bounded(seconds=3).idle_after(seconds=4))
        .key_by("team")
        .window(sl.sliding(seconds=10, every="5s"))
        .trigger(sl.after_watermark(early=sl.after_count(1), late=sl.after_count(1)))
        .accumulate(sl.retracting)
        .allow_lateness(seconds=10)
        .aggregate(
            total=sl.sum("score"),
            average=sl.mean("score"),
            players=sl.count_distinct("user"),
            about=sl.approx_count_distinct("user"),
            best=sl.top_k("score", 3),
            all=sl.collect("score"),
        )
        .write(Noting(str(FOLDER / "scores.db"), Table("totals")))
    )


if __name__ == "__main__":
    FOLDER, WISH = Path(sys.argv[1]), "".join(sys.argv[2:])
    job: Job = pipeline().run(checkpoint=FOLDER / "checkpoint")
    job.await_end()
