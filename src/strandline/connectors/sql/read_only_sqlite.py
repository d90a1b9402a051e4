"""Open a SQLite file for reading: nothing is written, no lock keeps a job from its commits, and no query runs for ever.

The file may come from elsewhere, with views, triggers and a schema that another program made.
"""

import sqlite3
import time
from pathlib import Path
from typing import Final

_MOST_SECONDS: Final = 60.0
_INSTRUCTIONS: Final = 100_000
"""Instructions of SQLite's virtual machine between two looks at the clock."""


def connect_to_read(path: Path, patience: float) -> sqlite3.Connection:
    """Open an existing file. A file in write-ahead mode in a folder that cannot be written is read as it is."""
    address = path.absolute().as_uri()
    try:
        return _opened(f"{address}?mode=ro", patience)
    except sqlite3.OperationalError:
        if path.with_name(f"{path.name}-wal").exists():
            raise  # a job may be writing it: it would change while it is read
        return _opened(f"{address}?mode=ro&immutable=1", patience)


def _opened(address: str, patience: float) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=patience)
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cache_size = -2048")  # KiB
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.Error:
        connection.close()
        raise
    until = time.monotonic() + _MOST_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > until, _INSTRUCTIONS)
    return connection
