"""Find Protobuf messages in a schema, and map their fields to columns."""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from strandline.errors import InvalidSchema
from strandline.formats.protobuf.proto_text import parse_proto

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST: Final = 2**63 - 1
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_TIME: Final = "google.protobuf.Timestamp"
_KNOWN: Final = (
    "any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers",
)  # fmt: skip
_ARROW: Final[Mapping[int, pa.DataType]] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.int64(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
Uses = tuple[tuple[str, str], ...]
Get = Callable[[Any], Any]


@lru_cache(maxsize=256)
def file_of(schema: str, uses: Uses = ()) -> Any:
    """Load a schema into a descriptor pool: .proto text, or a base64 descriptor as some registries store it."""
    pool = descriptor_pool.DescriptorPool()
    _add_known(pool)
    try:
        file = _file(schema, "schema.proto")
        _add_imported(file, dict(uses), pool, set())
        pool.AddSerializedFile(file.SerializeToString())
        return pool.FindFileByName(file.name)
    except (TypeError, KeyError, ValueError) as problem:
        raise InvalidSchema("the Protobuf schema is inconsistent", detail=str(problem)[:200]) from None


def message_of(schema: str, uses: Uses, name: str | None) -> Descriptor:
    """The message with this name, with or without its package; the first message if None."""
    file = file_of(schema, uses)
    found = list(all_messages(file))
    if not found:
        raise InvalidSchema("the Protobuf schema has no message")
    if name is None:
        return found[0]
    for each in found:
        if name in (each.full_name, each.full_name.removeprefix(f"{file.package}.")):
            return each
    raise InvalidSchema(
        f"the Protobuf schema has no message {name!r}",
        hint=f"choose from {', '.join(each.full_name for each in found)}",
    )


def all_messages(file: Any) -> Iterator[Descriptor]:
    """Yield each message before its nested ones, without map entries."""
    waiting = list(file.message_types_by_name.values())
    while waiting:
        message = waiting.pop(0)
        if not message.GetOptions().map_entry:
            yield message
            waiting += message.nested_types


def at_index(file: Any, index: tuple[int, ...]) -> Descriptor | None:
    """The message at an index: its position in the file, then in the outer message, and so on."""
    inside: list[Descriptor] = list(file.message_types_by_name.values())
    found = None
    for place in index:
        if not 0 <= place < len(inside):
            return None
        found = inside[place]
        inside = list(found.nested_types)
    return found


def index_of(message: Descriptor) -> tuple[int, ...]:
    """The index of a message in the wire format."""
    outer = message.containing_type
    if outer is None:
        return (list(message.file.message_types_by_name.values()).index(message),)
    return (*index_of(outer), list(outer.nested_types).index(message))


def class_of(message: Descriptor) -> type[Message]:
    return message_factory.GetMessageClass(message)


def columns_of(message: Descriptor) -> pa.Schema:
    """Convert a message's fields to columns."""
    return pa.schema([(each.name, _type(each, (message,))) for each in message.fields])


def getter(field: FieldDescriptor) -> Get:
    """Return a function that reads this field's column value from a message; it raises ValueError if the value does not
    fit."""
    if field.is_repeated:
        return _map(field) if _is_map(field) else _list(field)
    value = _value(field)
    get: Get = attrgetter(field.name) if field.name.isidentifier() else (lambda found: getattr(found, field.name))
    if not field.has_presence:
        return get if value is None else (lambda found: value(get(found)))
    name, own = field.name, value or (lambda found: found)
    return lambda found: own(get(found)) if found.HasField(name) else None


def is_instant(field: FieldDescriptor) -> bool:
    """Whether the field is a single timestamp, whose column is read without converting each value."""
    return not field.is_repeated and field.message_type is not None and field.message_type.full_name == _TIME


def instants(field: FieldDescriptor, found: Sequence[Any]) -> tuple[pa.Array, list[int]]:
    """Read a column of timestamps, and the positions of those outside the calendar."""
    present = np.fromiter((each.HasField(field.name) for each in found), np.bool_, len(found))
    seconds = np.fromiter(map(attrgetter(f"{field.name}.seconds"), found), np.int64, len(found))
    nanos = np.fromiter(map(attrgetter(f"{field.name}.nanos"), found), np.int64, len(found))
    fine = (seconds >= _FIRST_SECOND) & (seconds <= _LAST_SECOND) & (nanos >= 0) & (nanos < 10**9)
    at = np.where(fine, seconds, 0) * 1_000_000 + nanos // 1000
    return pa.array(at, mask=~(present & fine)).cast(pa.timestamp("us", tz="UTC")), np.flatnonzero(
        present & ~fine
    ).tolist()


def fill(message: Any, row: Mapping[str, Any]) -> Any:
    """Fill a message with a row's values; nulls stay unset."""
    for field in message.DESCRIPTOR.fields:
        value = row[field.name]
        if value is None:
            continue
        if _is_map(field):
            _fill_map(field, getattr(message, field.name), value)
        elif field.is_repeated:
            target = getattr(message, field.name)
            for each in value:
                if field.message_type is None:
                    target.append(_plain(field, each))
                else:
                    _fill(target.add(), each)
        elif field.message_type is None:
            setattr(message, field.name, _plain(field, value))
        else:
            getattr(message, field.name).SetInParent()
            _fill(getattr(message, field.name), value)
    return message


def _fill_map(field: FieldDescriptor, target: Any, value: Mapping[str, Any]) -> None:
    key, inner = (_part(field, part) for part in ("key", "value"))
    texts = key.cpp_type == FieldDescriptor.CPPTYPE_STRING
    for name, each in value.items():
        place = name if texts else name == "True" if key.cpp_type == FieldDescriptor.CPPTYPE_BOOL else int(name)
        if inner.message_type is None:
            target[place] = _plain(inner, each)
        else:
            _fill(target[place], each)


def _fill(message: Any, value: Any) -> None:
    if message.DESCRIPTOR.full_name == _TIME:
        since = value - _EPOCH
        message.seconds, message.nanos = since // timedelta(seconds=1), since.microseconds * 1000
    elif _is_wrapper(message.DESCRIPTOR):
        message.value = value
    else:
        fill(message, value)


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is None:
        return value
    known = field.enum_type.values_by_name.get(value)
    return int(value) if known is None else known.number


def _list(field: FieldDescriptor) -> Get:
    value, name = _value(field), field.name
    if value is None:
        return lambda found: list(getattr(found, name))
    return lambda found: [value(each) for each in getattr(found, name)]


def _map(field: FieldDescriptor) -> Get:
    value, name = _value(_part(field, "value")) or (lambda found: found), field.name
    return lambda found: [(str(key), value(each)) for key, each in getattr(found, name).items()]


def _value(field: FieldDescriptor) -> Get | None:
    """Return a conversion for one value; None if it needs none."""
    if field.enum_type is not None:
        names = {each.number: each.name for each in field.enum_type.values}
        return lambda found: names.get(found) or str(found)
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return _signed
    if field.message_type is None:
        return None
    message = field.message_type
    if message.full_name == _TIME:
        return _instant
    if _is_wrapper(message):
        inner = _value(message.fields_by_name["value"])
        return lambda found: found.value if inner is None else inner(found.value)
    parts = [(each.name, getter(each)) for each in message.fields]
    return lambda found: {name: get(found) for name, get in parts}


def _signed(found: int) -> int:
    if found > _MOST:
        raise ValueError("a number out of the range of its type")
    return found


def _instant(found: Any) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=found.seconds, microseconds=found.nanos // 1000)
    except OverflowError:
        raise ValueError("a time outside of the years 1 to 9999") from None


def _type(field: FieldDescriptor, above: tuple[Descriptor, ...]) -> pa.DataType:
    if _is_map(field):
        return pa.map_(pa.string(), _type(_part(field, "value"), above))
    one = _one(field, above)
    return pa.list_(one) if field.is_repeated else one


def _one(field: FieldDescriptor, above: tuple[Descriptor, ...]) -> pa.DataType:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
    if field.message_type is None:
        return _ARROW[field.cpp_type]
    message = field.message_type
    if message.full_name == _TIME:
        return pa.timestamp("us", tz="UTC")
    if _is_wrapper(message):
        return _type(message.fields_by_name["value"], above)
    if message in above:
        raise InvalidSchema(f"the message {message.full_name} contains itself", hint="use a type that is not recursive")
    return pa.struct([(each.name, _type(each, (*above, message))) for each in message.fields])


def _part(entry: Any, name: str) -> FieldDescriptor:
    found: FieldDescriptor = entry.message_type.fields_by_name[name]
    return found


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_wrapper(message: Descriptor) -> bool:
    return message.file.name == "google/protobuf/wrappers.proto"


def _file(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        file.name = name
    except (binascii.Error, DecodeError, ValueError):
        file = parse_proto(text, name)
    for message in file.message_type:
        _refuse_reserved(message)
    return file


def _add_imported(
    file: descriptor_pb2.FileDescriptorProto,
    uses: Mapping[str, str],
    pool: descriptor_pool.DescriptorPool,
    done: set[str],
) -> None:
    """Add only imported schemas, directly or not: two versions of one file in a pool would clash."""
    for name in file.dependency:
        if name in uses and name not in done:
            done.add(name)
            used = _file(uses[name], name)
            _add_imported(used, uses, pool, done)
            pool.AddSerializedFile(used.SerializeToString())


def _refuse_reserved(message: descriptor_pb2.DescriptorProto) -> None:
    for field in message.field:
        if any(each.start <= field.number < each.end for each in message.reserved_range):
            raise InvalidSchema(f"the number {field.number} of {message.name}.{field.name} is reserved")
        if field.name in message.reserved_name:
            raise InvalidSchema(f"the name {message.name}.{field.name} is reserved")
    for inner in message.nested_type:
        _refuse_reserved(inner)


def _add_known(pool: descriptor_pool.DescriptorPool) -> None:
    """Add Protobuf's well-known types, which a schema may import."""
    from importlib import import_module  # noqa: PLC0415 - loaded by name, once per schema

    for name in _KNOWN:
        pool.AddSerializedFile(import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR.serialized_pb)
