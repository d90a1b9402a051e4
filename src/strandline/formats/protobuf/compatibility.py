"""Check whether Protobuf messages of one schema can be read with another, by field numbers and wire types."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from strandline.formats.protobuf.messages import all_messages, file_of

_ALIKE: Final = (
    {
        FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT32,
        FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_ENUM,
    },
    {FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SINT64},
    {FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32},
    {FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64},
    {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES},
)  # fmt: skip
"""Types with the same encoding, so that a field may change from one to another."""
_NAMES: Final = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}


def can_read_protobuf(
    reader: str, writer: str, reader_uses: Mapping[str, str] | None = None, writer_uses: Mapping[str, str] | None = None
) -> list[str]:
    """List why the reader's schema cannot read data of the writer's schema; empty if it can. Packages may differ."""
    readable, written = (
        _messages(file_of(text, tuple((uses or {}).items())))
        for text, uses in ((reader, reader_uses), (writer, writer_uses))
    )
    reasons: list[str] = []
    seen: set[tuple[str, str]] = set()
    for name, message in written.items():
        if name in readable:
            reasons += incompatibilities(readable[name], message, seen)
        else:
            reasons.append(f"{name}: the message may be written, and is not read")
    return list(dict.fromkeys(reasons))


def incompatibilities(
    reader: Descriptor, writer: Descriptor, seen: set[tuple[str, str]] | None = None
) -> Iterator[str]:
    """Yield why one message cannot be read as another, nested messages included. Each pair is compared once."""
    seen = set() if seen is None else seen
    if (reader.full_name, writer.full_name) in seen:
        return
    seen.add((reader.full_name, writer.full_name))
    yield from _fields(reader, writer, _short(reader))
    for field in reader.fields:
        written = writer.fields_by_number.get(field.number)
        if field.message_type is not None and written is not None and written.message_type is not None:
            yield from incompatibilities(field.message_type, written.message_type, seen)


def _messages(file: Any) -> dict[str, Descriptor]:
    return {each.full_name.removeprefix(f"{file.package}."): each for each in all_messages(file)}


def _fields(reader: Descriptor, writer: Descriptor, place: str) -> Iterator[str]:
    for field in reader.fields:
        written = writer.fields_by_number.get(field.number)
        inside = f"{place}.{field.name}"
        if written is not None:
            yield from _field(field, written, inside)
        elif field.is_required:
            yield f"{inside}: the field is required, and not written"
    for written in writer.fields:
        if written.number not in reader.fields_by_number and written.is_required:
            yield f"{place}.{written.name}: the field is required by the writer, and not read"
    yield from _oneofs(reader, writer, place)


def _field(reader: FieldDescriptor, writer: FieldDescriptor, place: str) -> Iterator[str]:
    if reader.type != writer.type and not any({reader.type, writer.type} <= alike for alike in _ALIKE):
        yield f"{place}: {_NAMES[writer.type]} was written, {_NAMES[reader.type]} is read"
        return
    named = reader.message_type is not None and not (_is_map(reader) and _is_map(writer))
    if named and _short(reader.message_type) != _short(writer.message_type):
        yield f"{place}: {_short(writer.message_type)} was written, {_short(reader.message_type)} is read"
    if reader.is_repeated != writer.is_repeated and not _is_delimited(reader):
        one, many = ("repeated", "single") if writer.is_repeated else ("single", "repeated")
        yield f"{place}: {one} numbers were written, {many} ones are read"
    if reader.is_required and not writer.is_required:
        yield f"{place}: the field is required, and may not be written"


def _oneofs(reader: Descriptor, writer: Descriptor, place: str) -> Iterator[str]:
    """Check oneofs. A oneof may grow, appear or vanish; it must not lose a member, nor absorb fields that could be set
    together."""
    reader_oneofs, writer_oneofs = _choices(reader), _choices(writer)
    read = frozenset(reader.fields_by_number)
    for name, numbers in writer_oneofs.items():
        if name in reader_oneofs:
            for number in numbers - read:
                yield f"{place}.{name}: the oneof lost the field {number}"
    for name, numbers in reader_oneofs.items():
        known = {number for number in numbers if number in writer.fields_by_number}
        moved = known - writer_oneofs.get(name, set())
        if name in writer_oneofs and moved:
            yield f"{place}.{name}: the fields {_listed(moved)} moved into an existing oneof"
        elif len(moved) > 1 and not any(moved <= members for members in writer_oneofs.values()):
            yield f"{place}.{name}: the fields {_listed(moved)} moved into one oneof, and could be set together before"


def _choices(message: Descriptor) -> dict[str, set[int]]:
    """The oneofs that are written in the schema, without those of optional fields."""
    found = {each.name: {field.number for field in each.fields} for each in message.oneofs}
    own = {f"_{field.name}": {field.number} for field in message.fields}
    return {name: numbers for name, numbers in found.items() if own.get(name) != numbers}


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_delimited(field: FieldDescriptor) -> bool:
    return field.message_type is not None or field.cpp_type == FieldDescriptor.CPPTYPE_STRING


def _short(message: Any) -> str:
    return str(message.full_name.removeprefix(f"{message.file.package}."))


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
