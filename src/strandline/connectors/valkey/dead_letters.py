"""Store dead letters in the stream beside the rows, and the state of redrives under keys of their own.

totals.dead            the letters, an entry each
totals.dead.redrive    a redrive that was begun and not finished
totals.dead.redriven   by letter, the redrive that sent it back
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import polars as pl

from strandline.connectors.valkey.server import Server
from strandline.kernel.dead_letters import PUBLIC
from strandline.letters.envelope_json import from_json
from strandline.letters.store import Marks, Redrive, marked, refuse_overlap


@dataclass(frozen=True, slots=True)
class StreamLetters:
    """A stream of dead letters, read and changed from outside of the job; each call opens a connection."""

    server: Server
    stream: str

    @property
    def name(self) -> str:
        return f"{self.server}, stream {self.stream}"

    def read(self) -> pl.DataFrame:
        with self._client() as client:
            entries, redriven = client.xrange(self.stream), _texts(client.hgetall(self._redriven))
        letters = [from_json(fields[b"row"], f"entry {entry.decode()} of {self.stream}") for entry, fields in entries]
        rows = [{name: letter[name] for name in PUBLIC} for letter in letters]
        return marked(pl.DataFrame(rows, schema=PUBLIC), redriven)

    def begun(self) -> Redrive | None:
        with self._client() as client:
            return _redrive(client.get(self._begun))

    def begin(self, redrive: Redrive) -> None:
        facts = {"id": redrive.id, "letters": redrive.letters, "before": redrive.before}

        def act(known: Redrive | None, redriven: dict[str, str], queued: Any) -> None:
            refuse_overlap(redrive, known, redriven, self.name)
            queued.multi()
            queued.set(self._begun, json.dumps(facts))

        self._transact(act)

    def marks(self, redrive: Redrive, sent: Sequence[str]) -> Marks | None:  # noqa: ARG002 - no source shares its transactions
        return None

    def finish(self, redrive: Redrive, sent: Sequence[str]) -> None:
        def act(known: Redrive | None, redriven: dict[str, str], queued: Any) -> None:  # noqa: ARG001 - marks stay
            queued.multi()
            for each in sent:
                queued.hsetnx(self._redriven, each, redrive.id)
            if known is not None and known.id == redrive.id:
                queued.delete(self._begun)

        self._transact(act)

    def drop(self, ids: Sequence[str]) -> int:
        with self._client() as client:
            letters = [
                (entry, from_json(fields[b"row"], self.stream)["id"]) for entry, fields in client.xrange(self.stream)
            ]
            dropped = [(entry, id_) for entry, id_ in letters if id_ in ids]
            if dropped:
                client.xdel(self.stream, *(entry for entry, _ in dropped))
                self.server.on_disk(client)
        return len({id_ for _, id_ in dropped})

    def close(self) -> None:
        pass

    @property
    def _begun(self) -> str:
        return f"{self.stream}.redrive"

    @property
    def _redriven(self) -> str:
        return f"{self.stream}.redriven"

    def _transact(self, act: Callable[[Redrive | None, dict[str, str], Any], None]) -> None:
        """Run one optimistic transaction (WATCH) on the redrive keys; it is retried if another client changed them."""

        def transaction(queued: Any) -> None:
            act(_redrive(queued.get(self._begun)), _texts(queued.hgetall(self._redriven)), queued)

        with self._client() as client:
            client.transaction(transaction, self._begun, self._redriven)
            self.server.on_disk(client)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        client = self.server.connect()
        try:
            with self.server.sink_errors():
                yield client
        finally:
            client.close()


def _redrive(value: bytes | None) -> Redrive | None:
    facts = None if value is None else json.loads(value)
    return None if facts is None else Redrive(facts["id"], tuple(facts["letters"]), facts["before"])


def _texts(fields: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in fields.items()}
