"""List the savepoints of a job that are beside its folder, or in a folder of savepoints there."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from strandline.dashboard import api_types

MANIFEST: Final = "manifest.json"
LARGEST: Final = 16 * 2**20
MOST: Final = 200

_NONE_FOUND: Final = (
    "No savepoint of this job was found beside its folder, or in a folder `savepoints` there. "
    "`strandline savepoint list FOLDER` lists savepoints in other folders."
)


def savepoints(folder: Path, lineage: str) -> api_types.Savepoints:
    """The savepoints of this lineage, newest first."""
    places = (folder.parent, folder.parent / "savepoints", folder / "savepoints")
    found = [line for place in places for line in _savepoints_in(place, lineage)]
    newest = sorted(found, key=lambda line: (line.at or 0, line.name), reverse=True)[:MOST]
    return api_types.Savepoints(bool(newest), "" if newest else _NONE_FOUND, tuple(newest))


def _savepoints_in(place: Path, lineage: str) -> Iterator[api_types.SavepointLine]:
    try:
        manifests = [each / MANIFEST for each in place.iterdir() if not each.name.startswith(".")]
    except OSError:
        return
    for manifest in manifests:
        try:
            if not manifest.is_file() or manifest.stat().st_size > LARGEST:  # reading a named pipe would wait for ever
                continue
            manifest_content = json.loads(manifest.read_text())
            if manifest_content["identity"]["lineage"] == lineage:
                yield _line(manifest.parent, manifest_content)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue


def _line(folder: Path, manifest: Mapping[str, Any]) -> api_types.SavepointLine:
    rows = sum(int(step["rows"]) for step in manifest["steps"])
    made = int(datetime.fromisoformat(manifest["created"]).timestamp() * 1000)
    facts = {"batch": str(manifest["batch"]), "rows of state": f"{rows:,}", "written by": str(manifest["version"])}
    return api_types.SavepointLine(folder.name, made, str(folder), facts)
