"""Dead letters in the stream beside the rows, with what became of them under keys of their own.

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
    """A stream of letters, asked from outside of the job; each call has a connection of its own."""

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

        self._alone(act)

    def marks(self, redrive: Redrive, sent: Sequence[str]) -> Marks | None:  # noqa: ARG002 - no source shares its transactions
        return None

    def finish(self, redrive: Redrive, sent: Sequence[str]) -> None:
        def act(known: Redrive | None, redriven: dict[str, str], queued: Any) -> None:  # noqa: ARG001 - they stay
            queued.multi()
            for each in sent:
                queued.hsetnx(self._redriven, each, redrive.id)
            if known is not None and known.id == redrive.id:
                queued.delete(self._begun)

        self._alone(act)

    def drop(self, ids: Sequence[str]) -> int:
        with self._client() as client:
            told = [
                (entry, from_json(fields[b"row"], self.stream)["id"]) for entry, fields in client.xrange(self.stream)
            ]
            gone = [(entry, id_) for entry, id_ in told if id_ in ids]
            if gone:
                client.xdel(self.stream, *(entry for entry, _ in gone))
                self.server.on_disk(client)
        return len({id_ for _, id_ in gone})

    def close(self) -> None:
        pass

    @property
    def _begun(self) -> str:
        return f"{self.stream}.redrive"

    @property
    def _redriven(self) -> str:
        return f"{self.stream}.redriven"

    def _alone(self, act: Callable[[Redrive | None, dict[str, str], Any], None]) -> None:
        """One transaction on what is known; done anew on what is known then, if somebody came in between."""

        def asked(queued: Any) -> None:
            act(_redrive(queued.get(self._begun)), _texts(queued.hgetall(self._redriven)), queued)

        with self._client() as client:
            client.transaction(asked, self._begun, self._redriven)
            self.server.on_disk(client)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        client = self.server.connect()
        try:
            with self.server.reached():
                yield client
        finally:
            client.close()


def _redrive(told: bytes | None) -> Redrive | None:
    facts = None if told is None else json.loads(told)
    return None if facts is None else Redrive(facts["id"], tuple(facts["letters"]), facts["before"])


def _texts(told: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): said.decode() for name, said in told.items()}
