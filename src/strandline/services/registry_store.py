"""Store a schema registry in one SQLite file: schemas by id, versions by subject, compatibility levels."""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from strandline.formats.registry.subjects import Kind, Level, Reference, Schema, Version

_GLOBAL: Final = ""
"""The subject under which the registry's own level is stored."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS schemas (
  id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, text TEXT NOT NULL, uses TEXT NOT NULL,
  UNIQUE (kind, text, uses));
CREATE TABLE IF NOT EXISTS versions (
  subject TEXT NOT NULL, version INTEGER NOT NULL, id INTEGER NOT NULL REFERENCES schemas (id),
  deleted INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (subject, version));
CREATE TABLE IF NOT EXISTS levels (subject TEXT PRIMARY KEY, level TEXT NOT NULL);
PRAGMA user_version = 1;
"""


class Store:
    """The registry's storage. Changes are serialized, and durable before they are answered."""

    def __init__(self, file: Path) -> None:
        self._lock = threading.RLock()
        self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._db.executescript(_TABLES)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """The subjects that have a version; those with deleted versions only if requested."""
        return [
            row[0]
            for row in self._rows(
                "SELECT DISTINCT subject FROM versions WHERE deleted <= ? ORDER BY subject", (int(deleted),)
            )
        ]

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        return self._versions("v.subject = ? AND v.deleted <= ?", (subject, int(deleted)))

    def versions_of(self, number: int) -> list[Version]:
        """The versions that use a schema."""
        return self._versions("v.id = ? AND v.deleted = 0", (number,))

    def users_of(self, subject: str, version: int) -> list[int]:
        """The ids of the schemas that refer to this version."""
        users = [
            each.id
            for each in self._versions("v.deleted = 0", ())
            if any((use.subject, use.version) == (subject, version) for use in each.schema.references)
        ]
        return sorted(set(users))

    def schema(self, number: int) -> Schema | None:
        rows = self._rows("SELECT kind, text, uses FROM schemas WHERE id = ?", (number,))
        return _schema(*rows[0]) if rows else None

    def register(self, subject: str, schema: Schema, judge: Callable[[Sequence[Version]], None]) -> int:
        """Store a schema and return its id, new or known; the judge sees the earlier versions, and may raise an
        error."""
        with self._transaction():
            present = self.versions(subject)
            for version in present:
                if version.schema == schema:
                    return version.id
            judge(present)
            number = self._id_of(schema)
            self._db.execute(
                "INSERT INTO versions (subject, version, id)"
                " SELECT ?, coalesce(max(version), 0) + 1, ? FROM versions WHERE subject = ?",
                (subject, number, subject),
            )
            return number

    def delete(self, subject: str, numbers: Sequence[int], *, permanent: bool) -> None:
        """Hide versions, or delete hidden ones permanently; their schemas stay, since records may carry their ids."""
        how = "DELETE FROM versions" if permanent else "UPDATE versions SET deleted = 1"
        with self._transaction():
            for number in numbers:
                self._db.execute(f"{how} WHERE subject = ? AND version = ?", (subject, number))

    def level(self, subject: str = _GLOBAL) -> Level | None:
        """The level of a subject, or of the whole registry; None if none is set."""
        rows = self._rows("SELECT level FROM levels WHERE subject = ?", (subject,))
        return Level(rows[0][0]) if rows else None

    def set_level(self, level: Level | None, subject: str = _GLOBAL) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM levels WHERE subject = ?", (subject,))
            if level is not None:
                self._db.execute("INSERT INTO levels VALUES (?, ?)", (subject, level))

    def _id_of(self, schema: Schema) -> int:
        facts = (schema.kind, schema.text, _references_json(schema.references))
        rows = self._rows("SELECT id FROM schemas WHERE (kind, text, uses) = (?, ?, ?)", facts)
        if rows:
            return int(rows[0][0])
        made = self._db.execute("INSERT INTO schemas (kind, text, uses) VALUES (?, ?, ?) RETURNING id", facts)
        return int(made.fetchone()[0])

    def _versions(self, where: str, values: tuple[object, ...]) -> list[Version]:
        rows = self._rows(
            "SELECT v.subject, v.version, v.id, s.kind, s.text, s.uses"  # noqa: S608 - constant text only
            f" FROM versions v JOIN schemas s ON s.id = v.id WHERE {where} ORDER BY v.subject, v.version",
            values,
        )
        return [
            Version(subject, number, schema, _schema(kind, text, uses))
            for subject, number, schema, kind, text, uses in rows
        ]

    def _rows(self, query: str, values: tuple[object, ...]) -> list[Any]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")


def _schema(kind: str, text: str, uses: str) -> Schema:
    return Schema(
        Kind(kind), text, tuple(Reference(name, subject, number) for name, subject, number in json.loads(uses))
    )


def _references_json(uses: Sequence[Reference]) -> str:
    return json.dumps([[use.name, use.subject, use.version] for use in uses])
