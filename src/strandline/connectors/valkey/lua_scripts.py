"""What is asked of the server, one script each (`scripts.lua`), and the ledger that it answers from."""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final

from strandline.connectors.valkey.chunks import Part
from strandline.connectors.valkey.encode_rows import WIDTH
from strandline.connectors.valkey.server import Server
from strandline.errors import Fenced, SinkError, SinkUnavailable, StateError
from strandline.kernel.output import Output, counts_to_facts
from strandline.ports.ledger import LedgerEntry, Recorded

FORMAT: Final = 1
KEPT: Final = 1_000
"""Entries of a job that are kept, many more than Spark can go back."""

_log: Final = logging.getLogger("strandline")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the ledger says of a job, and of one of its batches."""

    epoch: int | None
    job: int
    applying: int | None
    """The part of the last batch that is to take effect next; None where all have."""
    staged: int
    last: Recorded | None
    known: Recorded | None


class Acts:
    """A server at work for one prefix, used from one thread at a time."""

    def __init__(self, server: Server, prefix: str, output: int, name: str) -> None:
        self._server, self._prefix, self._output, self._name = server, prefix, output, name
        self._client = server.connect()
        self._script = self._client.register_script(files(__package__).joinpath("scripts.lua").read_text("utf-8"))
        self._keeps = True
        try:
            self._look_around()
        except BaseException:
            self.close()
            raise

    def claim(self, lineage: str) -> int:
        """Raises the epoch; what an earlier driver had begun is brought to its end."""
        self._try(lineage)
        epoch = int(self._run(lineage, "claim", 0))
        self.settle(lineage, epoch, self.look(lineage, 0))
        self.keep()
        return epoch

    def look(self, lineage: str, batch: int) -> Seen:
        told = self._run(lineage, "look", batch)
        epoch, job, applying, staged, _, last, known = [None if each is None else each.decode() for each in told]
        numbers = [None if each is None else int(each) for each in (epoch, job, applying, staged)]
        return Seen(
            numbers[0], numbers[1] or 0, numbers[2], numbers[3] or 0, self._recorded(last), self._recorded(known)
        )

    def settle(self, lineage: str, epoch: int, seen: Seen) -> None:
        """Lets the parts of a batch that is in the ledger take effect, and forgets those of one that is not."""
        if seen.applying is not None:
            self.apply(lineage, epoch, range(seen.applying, seen.staged))
        else:
            for number in reversed(range(seen.staged)):
                self.act(lineage, epoch, "forget", number, part=number)

    def apply(self, lineage: str, epoch: int, parts: range) -> None:
        """Lets parts of the last batch take effect, one after the other."""
        for number in parts:
            self.act(lineage, epoch, "apply", number, part=number)

    def write(self, entry: LedgerEntry, part: Part) -> list[int]:
        """A part takes effect by itself; the rows that stand in the way of somebody else's values, if any."""
        return self.act(entry.lineage, entry.epoch, "write", entry.batch, *part.to_texts())

    def stage(self, entry: LedgerEntry, number: int, part: Part) -> list[int]:
        """A part is put aside; the rows that may not be, if any."""
        return self.act(entry.lineage, entry.epoch, "stage", number, *part.to_texts(), part=number)

    def commit(self, output: Output, entry: LedgerEntry, seen: Seen, parts: int, part: Part) -> list[int]:
        """A part takes effect with the entry, and all parts that were staged are bound to; or some rows may not."""
        last = "" if seen.last is None else seen.last.batch
        oldest = entry.batch - KEPT if entry.batch % 100 == 0 else ""
        told = (entry.batch, last, _facts(output, entry), oldest, parts, *part.to_texts())
        return self.act(entry.lineage, entry.epoch, "commit", *told)

    def act(self, lineage: str, epoch: int, act: str, *told: object, part: int = 0) -> list[int]:
        """Does it; the numbers of rows for which it was not done, none if it was."""
        word, *numbers = self._run(lineage, act, epoch, *told, part=part)
        match word:
            case b"done":
                return []
            case b"refused":
                return [int(each) for each in numbers]
            case b"fenced":
                newest = self.look(lineage, 0).epoch
                raise Fenced(
                    "another driver has taken over this job",
                    detail=f"its epoch is {newest}, ours {epoch}",
                    hint="stop one of the two",
                )
        raise SinkUnavailable(f"{self._name} has changed in the meantime")

    def keep(self) -> None:
        """Waits until what this connection has written is on the server's disk, where it keeps anything there."""
        if self._keeps:
            self._keeps = self._server.on_disk(self._client)

    def keep_known(self, entry: LedgerEntry) -> None:
        """As `keep`, for what an earlier connection may have written."""
        if self._keeps:
            self.act(entry.lineage, entry.epoch, "touch")
            self.keep()

    def close(self) -> None:
        self._client.close()

    def _try(self, lineage: str) -> None:
        for name, kind in zip(("late", "dead"), self._run(lineage, "try", 0, part="try"), strict=True):
            if kind not in (b"none", b"stream"):
                raise SinkError(
                    f"{self._prefix}.{name} is no stream",
                    detail=f"it is a {kind.decode()}",
                    hint="choose another prefix, or give it another name",
                )

    def _run(self, lineage: str, act: str, who: int, *told: object, part: int | str = 0) -> Any:
        job = f"{lineage}:{self._output}"
        names = (f"ledger:{job}", "late", "dead", "jobs", f"staged:{job}:{part}")
        with self._server.reached():
            return self._script(keys=[f"{self._prefix}.{name}" for name in names], args=[act, who, WIDTH, *told])

    def _look_around(self) -> None:
        with self._server.reached():
            memory, disk = self._client.info("memory"), self._client.info("persistence")
        policy = str(memory.get("maxmemory_policy", ""))
        if policy.startswith("allkeys") and memory.get("maxmemory"):
            raise SinkError(
                f"{self._server} drops keys of any kind when its memory is full",
                detail=f"maxmemory-policy is {policy}: rows would vanish, and the ledger with them",
                hint="set maxmemory-policy to noeviction, or to one that begins with volatile",
            )
        self._keeps = bool(disk.get("aof_enabled"))
        if not self._keeps:
            _log.warning(
                "%s does not write each change to its disk (appendonly is off): after a crash of the server its last "
                "batches are gone, and the job will not go on over the gap",
                self._server,
            )

    def _recorded(self, text: str | None) -> Recorded | None:
        if text is None:
            return None
        try:
            facts = json.loads(text)
            if facts["format"] > FORMAT:
                raise StateError(f"the ledger of {self._name} is written by a newer Strandline", hint="upgrade")
            told = (facts["digest"], facts["watermark"], facts["ends"], facts["output"])
            return Recorded(facts["batch"], *told)
        except (ValueError, TypeError, KeyError) as problem:
            raise StateError(f"the ledger of {self._name} cannot be read", detail=str(problem)[:200]) from None


def _facts(output: Output, entry: LedgerEntry) -> str:
    return json.dumps({
        "format": FORMAT, "batch": entry.batch, "epoch": entry.epoch, "digest": entry.digest,
        "watermark": output.progress.watermark, "clock": output.progress.clock,
        "counts": dict(counts_to_facts(output.counts)), "starts": entry.starts, "ends": entry.ends,
        "output": entry.output, "committed": datetime.now(UTC).isoformat(timespec="milliseconds"),
    })  # fmt: skip
