"""Keep the identities of the logs that a job reads: a topic or a table that is deleted and made anew is another one.

    logs.json    {"version": 1, "sources": {"0": {"scores": "topic id"}}}

An offset means nothing in another log. The file is written when a job starts for the first time. A folder of a version
before gets it at its next start.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from strandline.errors import CheckpointMismatch

LOGS: Final = "logs.json"
_VERSION: Final = 1

Identities = Mapping[int, Mapping[str, str]]
"""By the number of a source, the identity of each of its logs by name."""


def read_identities(folder: Path) -> dict[int, dict[str, str]]:
    """Read the identities in a job's folder; none if it has none yet."""
    path = folder / LOGS
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    try:
        facts = json.loads(text)
        if facts["version"] != _VERSION:
            raise ValueError(f"version {facts['version']} is unknown")
        return {
            int(number): {str(name): str(known) for name, known in each.items()}
            for number, each in facts["sources"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise CheckpointMismatch(
            f"cannot read {path}", detail=str(problem), hint=f"strandline checkpoint check {folder}"
        ) from None


def as_text(known: Identities) -> str:
    """Return the file's text."""
    sources = {str(number): dict(sorted(each.items())) for number, each in sorted(known.items())}
    return json.dumps({"version": _VERSION, "sources": sources}) + "\n"
