"""Look rows up in Valkey or Redis: one hash for each key, with a field for each column."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from string import Formatter
from typing import Any, Final

import polars as pl

from strandline.connectors.valkey.server import Server, server_of
from strandline.errors import InvalidStep, LookupFailed, LookupUnavailable, SinkError, SinkUnavailable
from strandline.formats.lookup_rows import columns_of, typed_rows
from strandline.formats.secrets import Secret
from strandline.kernel.stateless_steps import PROBLEM
from strandline.model import ddl
from strandline.model.arguments import checked
from strandline.ports.lookups import REQUEST_SECONDS

_NO_HASH: Final = "WRONGTYPE"


@dataclass(frozen=True, slots=True)
class ValkeyLookup:
    """A server and the pattern of its keys, with the columns that are read."""

    server: Server
    pattern: str
    columns: str

    @property
    def name(self) -> str:
        return f"lookup_valkey({self.pattern!r})"

    @property
    def definition(self) -> Mapping[str, Any]:
        """Leave out the server, which may move."""
        return {"pattern": self.pattern, "columns": self.columns}

    @property
    def table_columns(self) -> Mapping[str, str]:
        return ddl.parse(self.columns)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return fields_of(self.pattern)

    @property
    def most_keys(self) -> None:
        return None

    def check(self, keys: Sequence[str]) -> None:  # noqa: ARG002 - a server knows its keys only
        table = OpenValkeyLookup(self, (), ())
        try:
            table.ping()
        finally:
            table.close()

    def open(self, keys: Sequence[str], columns: Sequence[str]) -> "OpenValkeyLookup":
        return OpenValkeyLookup(self, tuple(keys), tuple(columns))


@checked
def lookup_valkey(
    url: str | Secret,
    columns: str,
    *,
    key: str,
    password: str | Secret | None = None,
    ca: str | None = None,
    over_tls: bool = True,
) -> ValkeyLookup:
    """Look hashes up in Valkey or Redis: `lookup_valkey(url, "user_id long, name string", key="user:{user_id}")`.

    `key` is the name of a hash, with the key columns in braces; the other columns are fields of the hash. A field that
    is absent is null. Secrets are references: `password="env:NAME"`, or the whole URL.
    """
    kinds = columns_of(columns, "lookup_valkey")
    names = fields_of(key)
    if not names or any(name not in kinds for name in names):
        raise InvalidStep(
            f"the key {key!r} names no column of the table, or one that it does not have",
            detail=f"it has {', '.join(kinds)}",
            hint='as in key="user:{user_id}"',
        )
    return ValkeyLookup(server_of(url, password, ca, over_tls), key, columns)


def fields_of(pattern: str) -> tuple[str, ...]:
    """Return the columns that a pattern names in braces."""
    wrong = InvalidStep(f"the pattern {pattern!r} cannot be read", hint='as in "user:{user_id}"')
    try:
        parts = [*Formatter().parse(pattern)]
    except ValueError:
        raise wrong from None
    if any(form or conversion for _, _, form, conversion in parts):
        raise wrong
    return tuple(dict.fromkeys(name for _, name, _, _ in parts if name is not None))


class OpenValkeyLookup:
    """A client for each thread."""

    def __init__(self, lookup: ValkeyLookup, keys: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self._lookup, self._keys, self._columns = lookup, keys, columns
        self._local = threading.local()
        self._opened: list[Any] = []

    def ping(self) -> None:
        with self._lookup_errors():
            self._client().ping()

    def rows(self, keys: pl.DataFrame) -> pl.DataFrame:
        wanted = keys.select(self._keys).rows()
        kinds = {name: self._lookup.table_columns[name] for name in (*self._keys, *self._columns)}
        with self._lookup_errors():
            pipe = self._client().pipeline(transaction=False)
            for key in wanted:
                name = self._lookup.pattern.format(**dict(zip(self._keys, map(_written, key), strict=True)))
                pipe.exists(name)
                pipe.hmget(name, list(self._columns) or [""])
            answers = pipe.execute(raise_on_error=False)
        rows, problems = [], []
        for key, there, fields in zip(wanted, answers[::2], answers[1::2], strict=True):
            problem = next((each for each in (there, fields) if isinstance(each, Exception)), None)
            if problem is not None and not str(problem).startswith(_NO_HASH):
                with self._lookup_errors():
                    raise problem
            if there:
                values = [None] * len(self._columns) if problem else fields[: len(self._columns)]
                rows.append((*key, *values))
                problems.append("the key is no hash" if problem else None)
        found = typed_rows(kinds, rows)
        return found.with_columns(pl.coalesce(pl.Series(problems, dtype=pl.String), PROBLEM).alias(PROBLEM))

    @contextmanager
    def _lookup_errors(self) -> Iterator[None]:
        try:
            with self._lookup.server.sink_errors():
                yield
        except SinkUnavailable as problem:
            message = problem.message.replace("written", "read")
            raise LookupUnavailable(message, detail=problem.detail, hint=problem.hint) from None
        except SinkError as problem:
            message = problem.message.replace("a batch", "a lookup")
            raise LookupFailed(message, detail=problem.detail, hint=problem.hint) from None

    def _client(self) -> Any:
        known = getattr(self._local, "client", None)
        if known is None:
            known = self._local.client = self._lookup.server.connect(seconds=REQUEST_SECONDS)
            self._opened.append(known)
        return known

    def close(self) -> None:
        for each in self._opened:
            each.close()


def _written(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
