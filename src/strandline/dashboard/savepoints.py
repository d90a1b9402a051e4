"""The savepoints of a job that lie near it: beside its folder, or in a folder of savepoints there."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from strandline.dashboard import api_types

MANIFEST: Final = "manifest.json"
LARGEST: Final = 16 * 2**20
MOST: Final = 200

_NONE: Final = (
    "No savepoint of this job lies beside its folder, or in a folder called savepoints there. "
    "Savepoints may be kept anywhere: `strandline savepoint list FOLDER` finds them too."
)


def savepoints(folder: Path, lineage: str) -> api_types.Savepoints:
    """Those of this lineage, newest first."""
    places = (folder.parent, folder.parent / "savepoints", folder / "savepoints")
    found = [line for place in places for line in _found(place, lineage)]
    newest = sorted(found, key=lambda line: (line.at or 0, line.name), reverse=True)[:MOST]
    return api_types.Savepoints(bool(newest), "" if newest else _NONE, tuple(newest))


def _found(place: Path, lineage: str) -> Iterator[api_types.SavepointLine]:
    try:
        manifests = [each / MANIFEST for each in place.iterdir() if not each.name.startswith(".")]
    except OSError:
        return
    for manifest in manifests:
        try:
            told = json.loads(manifest.read_text()) if manifest.stat().st_size <= LARGEST else {}
            if told["identity"]["lineage"] == lineage:
                yield _line(manifest.parent, told)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue


def _line(folder: Path, told: Mapping[str, Any]) -> api_types.SavepointLine:
    rows = sum(int(step["rows"]) for step in told["steps"])
    made = int(datetime.fromisoformat(told["created"]).timestamp() * 1000)
    facts = {"batch": str(told["batch"]), "rows of state": f"{rows:,}", "written by": str(told["version"])}
    return api_types.SavepointLine(folder.name, made, str(folder), facts)
