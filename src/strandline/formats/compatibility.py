"""Check a new schema against older versions, by the rules of a compatibility level."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from strandline.formats.avro.compatibility import can_read_avro
from strandline.formats.json.compatibility import can_read_json
from strandline.formats.protobuf.compatibility import can_read_protobuf
from strandline.formats.registry.subjects import Kind, Level

Uses = Mapping[str, str]
CanRead = Callable[[str, str, Uses, Uses], list[str]]

_JUDGES: Final[Mapping[Kind, CanRead]] = {
    Kind.AVRO: can_read_avro,
    Kind.PROTOBUF: can_read_protobuf,
    Kind.JSON: can_read_json,
}


def check(new: str, older: Sequence[str], level: Level, kind: Kind = Kind.AVRO, uses: Uses | None = None) -> list[str]:
    """List why a new schema is incompatible with older ones, given oldest first; empty if it is compatible.

    `uses` holds the texts of referenced schemas, by name.
    """
    can_read = _JUDGES[kind]
    versions = list(enumerate(older, 1)) if level.is_transitive else list(enumerate(older, 1))[-1:]
    known = uses or {}
    reasons: list[str] = []
    for version, old in reversed(versions):
        if level.reads_older:
            reasons += [f"cannot read version {version}: {why}" for why in can_read(new, old, known, known)]
        if level.is_read_by_older:
            reasons += [f"version {version} cannot read it: {why}" for why in can_read(old, new, known, known)]
    return reasons
