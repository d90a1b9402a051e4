"""Run the server-side script (`scripts.lua`): one call per action, checked against the ledger."""

import json
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
from strandline.redaction import logger

FORMAT: Final = 1
KEPT: Final = 1_000
"""Ledger entries that are kept of a job, many more than Spark can go back."""

_log: Final = logger("strandline")


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The ledger's state of a job, and of one of its batches."""

    epoch: int | None
    job: int
    applying: int | None
    """The part of the last batch to apply next; None if all are applied."""
    staged: int
    last: Recorded | None
    known: Recorded | None


class ScriptCalls:
    """Script calls for one prefix on a server, used from one thread at a time."""

    def __init__(self, server: Server, prefix: str, output: int, name: str) -> None:
        self._server, self._prefix, self._output, self._name = server, prefix, output, name
        self._client = server.connect()
        self._script = self._client.register_script(files(__package__).joinpath("scripts.lua").read_text("utf-8"))
        self._persists = True
        try:
            self._check_server()
        except BaseException:
            self.close()
            raise

    def claim(self, lineage: str) -> int:
        """Raise the epoch, and finish what an earlier driver had begun."""
        self._check_permissions(lineage)
        epoch = int(self._run(lineage, "claim", 0))
        self.settle(lineage, epoch, self.read_ledger(lineage, 0))
        self.wait_on_disk()
        return epoch

    def read_ledger(self, lineage: str, batch: int) -> LedgerState:
        answer = self._run(lineage, "look", batch)
        epoch, job, applying, staged, _, last, known = [None if each is None else each.decode() for each in answer]
        numbers = [None if each is None else int(each) for each in (epoch, job, applying, staged)]
        return LedgerState(
            numbers[0], numbers[1] or 0, numbers[2], numbers[3] or 0, self._recorded(last), self._recorded(known)
        )

    def settle(self, lineage: str, epoch: int, seen: LedgerState) -> None:
        """Apply the staged parts of a committed batch; discard those of an uncommitted one."""
        if seen.applying is not None:
            self.apply(lineage, epoch, range(seen.applying, seen.staged))
        else:
            for number in reversed(range(seen.staged)):
                self.act(lineage, epoch, "forget", number, part=number)

    def apply(self, lineage: str, epoch: int, parts: range) -> None:
        """Apply parts of the last batch, one after the other."""
        for number in parts:
            self.act(lineage, epoch, "apply", number, part=number)

    def write(self, entry: LedgerEntry, part: Part) -> list[int]:
        """Apply a part without a ledger entry; return the rows whose keys hold foreign values."""
        return self.act(entry.lineage, entry.epoch, "write", entry.batch, *part.to_texts())

    def stage(self, entry: LedgerEntry, number: int, part: Part) -> list[int]:
        """Stage a part; return the rows whose keys hold foreign values."""
        return self.act(entry.lineage, entry.epoch, "stage", number, *part.to_texts(), part=number)

    def commit(self, output: Output, entry: LedgerEntry, seen: LedgerState, parts: int, part: Part) -> list[int]:
        """Apply a part with its ledger entry, which commits all staged parts too; return the rows with foreign keys."""
        last = "" if seen.last is None else seen.last.batch
        oldest = entry.batch - KEPT if entry.batch % 100 == 0 else ""
        arguments = (entry.batch, last, _facts(output, entry), oldest, parts, *part.to_texts())
        return self.act(entry.lineage, entry.epoch, "commit", *arguments)

    def act(self, lineage: str, epoch: int, act: str, *arguments: object, part: int = 0) -> list[int]:
        """Run an action; return the numbers of the rows that it refused."""
        status, *numbers = self._run(lineage, act, epoch, *arguments, part=part)
        match status:
            case b"done":
                return []
            case b"refused":
                return [int(each) for each in numbers]
            case b"fenced":
                newest = self.read_ledger(lineage, 0).epoch
                raise Fenced(
                    "another driver has taken over this job",
                    detail=f"its epoch is {newest}, ours {epoch}",
                    hint="stop one of the two",
                )
        raise SinkUnavailable(f"{self._name} was changed by another process during a batch")

    def wait_on_disk(self) -> None:
        """Wait until this connection's writes are on the server's disk, if the server persists them."""
        if self._persists:
            self._persists = self._server.on_disk(self._client)

    def wait_known_on_disk(self, entry: LedgerEntry) -> None:
        """Do the same for writes of an earlier connection."""
        if self._persists:
            self.act(entry.lineage, entry.epoch, "touch")
            self.wait_on_disk()

    def close(self) -> None:
        self._client.close()

    def _check_permissions(self, lineage: str) -> None:
        for name, kind in zip(("late", "dead"), self._run(lineage, "try", 0, part="try"), strict=True):
            if kind not in (b"none", b"stream"):
                raise SinkError(
                    f"{self._prefix}.{name} is not a stream",
                    detail=f"it is a {kind.decode()}",
                    hint="choose another prefix, or rename that key",
                )

    def _run(self, lineage: str, act: str, epoch: int, *arguments: object, part: int | str = 0) -> Any:
        job = f"{lineage}:{self._output}"
        names = (f"ledger:{job}", "late", "dead", "jobs", f"staged:{job}:{part}")
        with self._server.sink_errors():
            return self._script(keys=[f"{self._prefix}.{name}" for name in names], args=[act, epoch, WIDTH, *arguments])

    def _check_server(self) -> None:
        with self._server.sink_errors():
            memory, disk = self._client.info("memory"), self._client.info("persistence")
        policy = str(memory.get("maxmemory_policy", ""))
        if policy.startswith("allkeys") and memory.get("maxmemory"):
            raise SinkError(
                f"{self._server} evicts any key when its memory is full",
                detail=f"maxmemory-policy is {policy}: it would evict rows and the ledger",
                hint="set maxmemory-policy to noeviction, or to one that begins with volatile",
            )
        self._persists = bool(disk.get("aof_enabled"))
        if not self._persists:
            _log.warning(
                "%s does not persist every write (appendonly is off): a crash of the server loses its last batches, "
                "and the job will refuse to continue after the gap",
                self._server,
            )

    def _recorded(self, text: str | None) -> Recorded | None:
        if text is None:
            return None
        try:
            facts = json.loads(text)
            if facts["format"] > FORMAT:
                raise StateError(f"the ledger of {self._name} is written by a newer Strandline", hint="upgrade")
            fields = (facts["digest"], facts["watermark"], facts["ends"], facts["output"])
            return Recorded(facts["batch"], *fields)
        except (ValueError, TypeError, KeyError) as problem:
            raise StateError(f"the ledger of {self._name} cannot be read", detail=str(problem)[:200]) from None


def _facts(output: Output, entry: LedgerEntry) -> str:
    return json.dumps({
        "format": FORMAT, "batch": entry.batch, "epoch": entry.epoch, "digest": entry.digest,
        "watermark": output.progress.watermark, "clock": output.progress.clock,
        "counts": dict(counts_to_facts(output.counts)), "starts": entry.starts, "ends": entry.ends,
        "output": entry.output, "committed": datetime.now(UTC).isoformat(timespec="milliseconds"),
    })  # fmt: skip
