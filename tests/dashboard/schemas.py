"""Check a value against the parts of JSON Schema that the API description uses."""

from collections.abc import Mapping
from typing import Any

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def wrong(value: Any, schema: Mapping[str, Any], shapes: Mapping[str, Any], place: str = "$") -> list[str]:
    """Where a value violates its schema, and how."""
    if "$ref" in schema:
        return wrong(value, shapes[schema["$ref"].rpartition("/")[2]], shapes, place)
    if "anyOf" in schema:
        tried = [wrong(value, each, shapes, place) for each in schema["anyOf"]]
        return [] if any(not found for found in tried) else tried[0]
    kind = str(schema["type"])
    fits = isinstance(value, _KINDS[kind]) and not (isinstance(value, bool) and kind != "boolean")
    if not fits:
        return [f"{place} is {value!r}, and no {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{place} is {value!r}, none of {schema['enum']}"]
    if kind == "array":
        return _wrong_items(value, schema, shapes, place)
    return _wrong_members(value, schema, shapes, place) if kind == "object" else []


def _wrong_items(value: list[Any], schema: Mapping[str, Any], shapes: Mapping[str, Any], place: str) -> list[str]:
    each = schema.get("prefixItems") or [schema["items"]] * len(value)
    if len(value) != len(each):
        return [f"{place} has {len(value)} items, and not {len(each)}"]
    return [problem for at, one in enumerate(value) for problem in wrong(one, each[at], shapes, f"{place}[{at}]")]


def _wrong_members(
    value: dict[str, Any], schema: Mapping[str, Any], shapes: Mapping[str, Any], place: str
) -> list[str]:
    known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    found = [f"{place} lacks {name}" for name in schema.get("required", ()) if name not in value]
    for name, one in value.items():
        if name in known:
            found += wrong(one, known[name], shapes, f"{place}.{name}")
        elif rest is False:
            found.append(f"{place} has {name}, which is not described")
        elif isinstance(rest, dict):
            found += wrong(one, rest, shapes, f"{place}.{name}")
    return found
