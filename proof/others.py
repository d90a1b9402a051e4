"""Run the campaign's other faults: torn checkpoints, delayed commits, old copies, full disks."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from proof.forked import out_of_room, restored
from proof.late_ends import late_ends
from proof.places import SERVED, place
from proof.torn import torn
from proof.zygote import Zygote
from strandline.services.service import Service

Say = Callable[[str], None]
Played = tuple[int, Sequence[str], Mapping[str, int]]
"""Rounds, violations, and results by kind."""

_ROOM: Final = {"sqlite": (40_000, 80_000, 100_000, 120_000), "folder": (300, 1_000, 1_500, 2_000)}
TORN, LATE, RESTORED, FULL = "torn checkpoint", "transaction that ends late", "old copy restored", "disk full"


def _torn(zygote: Zygote, sink: str, store: Mapping[str, str], folder: Path, _: Mapping[str, Service]) -> Played:
    told = torn(zygote, store, folder, sum(map(ord, sink)), 10 if sink == "kafka" else 30)
    return told.fates.total(), told.faults, dict(told.fates)


def _late(zygote: Zygote, sink: str, store: Mapping[str, str], folder: Path, services: Mapping[str, Service]) -> Played:
    told = late_ends(zygote, services[sink], store, folder, 25)
    return told.kills, told.faults, {}


def _restored(zygote: Zygote, sink: str, store: Mapping[str, str], folder: Path, _: Mapping[str, Service]) -> Played:
    told = restored(zygote, store, folder, 3 if sink == "kafka" else 10)
    return told.kills, told.faults, {}


def _full(zygote: Zygote, sink: str, store: Mapping[str, str], folder: Path, _: Mapping[str, Service]) -> Played:
    told = out_of_room(zygote, store, folder, _ROOM[sink])
    return len(_ROOM[sink]), told.faults, {}


PARTS: Final = {
    TORN: (_torn, ("sqlite", "postgres", "kafka", "delta")),
    LATE: (_late, SERVED),
    RESTORED: (_restored, ("sqlite", "postgres", "kafka", "delta")),
    FULL: (_full, tuple(_ROOM)),
}


def others(services: Mapping[str, Service], home: Path, say: Say) -> list[dict[str, Any]]:
    """Run all other faults; stored ones are not repeated."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="proof-") as folder, Zygote(Path(folder) / "log") as zygote:
        for name, (play, sinks) in PARTS.items():
            for sink in sinks:
                if sink in SERVED and sink not in services:
                    continue
                kept = home / f"{name.replace(' ', '-')}-{sink}.json"
                if not kept.exists():
                    mine = Path(folder) / kept.stem
                    mine.mkdir()
                    store = place(sink, f"{kept.stem}-{Path(folder).name}", mine, services)
                    rounds, faults, fates = play(zygote, sink, store, mine, services)
                    told = {"fault": name, "sink": sink, "rounds": rounds, "faults": list(faults), "fates": fates}
                    kept.write_text(json.dumps(told, indent=1) + "\n")
                    say(f"{name}, {sink}: {rounds} rounds, {len(faults)} faults")
                found.append(json.loads(kept.read_text()))
    return found
