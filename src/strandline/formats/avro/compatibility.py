"""Check whether Avro data written with one schema can be read with another, by Avro's schema resolution."""

from collections.abc import Iterator, Mapping
from typing import Final

from strandline.formats.avro.schema import (
    NO_DEFAULT,
    Array,
    Enum,
    Fixed,
    Map,
    Node,
    Primitive,
    Record,
    Union,
    parse_avro,
)

_READS: Final[Mapping[str, frozenset[str]]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}

Pairs = dict[tuple[int, int], tuple[str, ...]]
"""The reasons of each pair of records that was compared, or is being compared, with their places inside."""


def can_read_avro(
    reader: str, writer: str, reader_uses: Mapping[str, str] | None = None, writer_uses: Mapping[str, str] | None = None
) -> list[str]:
    """List why the reader's schema cannot read data of the writer's schema; empty if it can."""
    return list(incompatibilities(parse_avro(reader, reader_uses), parse_avro(writer, writer_uses)))


def incompatibilities(reader: Node, writer: Node, place: str = "", seen: Pairs | None = None) -> Iterator[str]:
    """Yield each reason with its place. A pair of records is compared once, however often the schemas name it."""
    seen = {} if seen is None else seen
    match reader, writer:
        case (_, Union(branches)):
            for branch in branches:
                yield from incompatibilities(reader, branch, place, seen)
        case (Union(branches), _):
            if all(any(incompatibilities(branch, writer, place, seen)) for branch in branches):
                yield f"{_prefix(place)}no branch of the union reads {_describe(writer)}"
        case (Record(), Record()):
            pair = (id(reader), id(writer))
            if pair in seen:
                yield from (f"{place}{why}" for why in seen[pair][:1])
                return
            seen[pair] = ()
            found = list(_records(reader, writer, place, seen))
            seen[pair] = tuple(why.removeprefix(place) for why in found)
            yield from found
        case (Enum(), Enum()):
            yield from _enums(reader, writer, place)
        case (Fixed(), Fixed()):
            yield from _fixed(reader, writer, place)
        case (Array(wanted), Array(inner)) | (Map(wanted), Map(inner)):
            yield from incompatibilities(wanted, inner, f"{place}[]", seen)
        case (Primitive(name=wanted_name), Primitive(name=name)) if name in {wanted_name, *_READS.get(wanted_name, ())}:
            pass
        case _:
            yield f"{_prefix(place)}{_describe(writer)} was written, {_describe(reader)} is read"


def _records(reader: Record, writer: Record, place: str, seen: Pairs) -> Iterator[str]:
    yield from _names(reader, writer, place)
    for field in reader.fields:
        inside = f"{place}.{field.name}" if place else field.name
        names = (field.name, *field.aliases)
        written = next((each for name in names if (each := writer.named(name)) is not None), None)
        if written is not None:
            yield from incompatibilities(field.type, written.type, inside, seen)
        elif field.default is NO_DEFAULT:
            yield f"{_prefix(inside)}the field is not written, and has no default"


def _enums(reader: Enum, writer: Enum, place: str) -> Iterator[str]:
    yield from _names(reader, writer, place)
    known = frozenset(reader.symbols)
    unknown = [symbol for symbol in writer.symbols if symbol not in known]
    if unknown and reader.default is None:
        yield f"{_prefix(place)}the symbols {', '.join(unknown)} may be written, and are not read"


def _fixed(reader: Fixed, writer: Fixed, place: str) -> Iterator[str]:
    yield from _names(reader, writer, place)
    if reader.size != writer.size:
        yield f"{_prefix(place)}a fixed of {writer.size} bytes was written, {reader.size} are read"


def _names(reader: Record | Enum | Fixed, writer: Record | Enum | Fixed, place: str) -> Iterator[str]:
    """Compare names without their namespace; the reader's aliases count in full."""
    if _short_name(reader.name) != _short_name(writer.name) and writer.name not in reader.aliases:
        yield f"{_prefix(place)}{writer.name} was written, {reader.name} is read, and is not known by that name"


def _short_name(name: str) -> str:
    return name.rpartition(".")[2]


def _describe(node: Node) -> str:
    match node:
        case Primitive(name=name):
            return name
        case Record() | Enum() | Fixed():
            return f"{type(node).__name__.lower()} {node.name}"
        case Array() | Map() | Union():
            return f"a{'n' if isinstance(node, Array) else ''} {type(node).__name__.lower()}"


def _prefix(place: str) -> str:
    return f"{place}: " if place else ""
