"""Check whether one JSON Schema accepts every value that another accepts, for the keywords in common use.

Checked: type, enum, const, bounds of numbers, strings, arrays and objects, pattern, multipleOf, uniqueItems,
properties, required, additionalProperties, patternProperties, items, prefixItems, additionalItems, dependencies, allOf,
anyOf, oneOf, not, and $ref within the schema. Other restricting keywords count as compatible if unchanged, and as
incompatible otherwise. Where the logic of keywords and the Confluent registry differ, the registry is followed.
"""

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from strandline.errors import InvalidSchema

_ALL: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_MINIMUMS: Final = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum")
_MAXIMUMS: Final = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum")
_UNCHECKED: Final = (
    "if", "then", "else", "contains", "minContains", "maxContains", "propertyNames", "unevaluatedProperties",
    "unevaluatedItems",
)  # fmt: skip
_DEEPEST: Final = 64
_MOST_COMPARISONS: Final = 40_000
"""Comparisons of one schema with another. Branches inside of branches could take more than any time."""

Uses = Mapping[str, str]
Roots = tuple[Any, Any, list[int]]
"""The two whole schemas, and how many comparisons may still be made."""


def can_read_json(reader: str, writer: str, *_: Uses) -> list[str]:
    """List why the reader's schema does not accept all values of the writer's schema; empty if it does."""
    new, old = _parsed(reader), _parsed(writer)
    try:
        return list(_reasons(new, old, (new, old, [_MOST_COMPARISONS]), "", 0))
    except (AttributeError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as problem:
        raise InvalidSchema(
            "the JSON Schema has a keyword with a value of a wrong type",
            detail=str(problem)[:200],
        ) from None


def _reasons(new: Any, old: Any, roots: Roots, place: str, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    if new is True:
        return
    roots[2][0] -= 1
    if roots[2][0] < 0:
        raise InvalidSchema(
            "the JSON Schema is too complex to be compared", hint=f"at most {_MOST_COMPARISONS} comparisons are made"
        )
    new, old = _resolve(new, roots[0]), _resolve(old, roots[1])
    if new is True or new == {} or old is False:
        return
    if new is False:
        yield f"{_prefix(place)}no value is accepted any more"
        return
    old = {} if old is True else old
    branched = list(_branches(new, old, roots, place, depth))
    if branched and branched[0] is None:
        return
    yield from (each for each in branched if each is not None)
    yield from _types(new, old, place)
    yield from _values(new, old, place)
    yield from _bounds(new, old, place)
    yield from _object(new, old, roots, place, depth)
    yield from _list(new, old, roots, place, depth)
    yield from _dependencies(new, old, roots, place, depth)
    for word in _UNCHECKED:
        if word in new and new[word] != old.get(word):
            yield f"{_prefix(place)}{word} changed, and cannot be checked"


def _branches(new: Any, old: Any, roots: Roots, place: str, depth: int) -> Iterator[str | None]:
    """Yield None first if the branches settle the question: some new branch accepts every old branch."""
    if ("allOf" in new or ("anyOf" in old and "oneOf" in new)) and {"oneOf", "anyOf"} & old.keys() - new.keys():
        yield f"{_prefix(place)}oneOf or anyOf was replaced by something narrower"
        return
    if "allOf" in old and "allOf" not in new:
        whole = _without(old, "allOf")
        if any(not any(_reasons(new, {**whole, **part}, roots, place, depth + 1)) for part in old["allOf"]):
            yield None
            return
    for word in ("oneOf", "anyOf"):
        if word in old:
            fits = [
                not any(_reasons(new, {**_without(old, word), **each}, roots, place, depth + 1)) for each in old[word]
            ]
            yield None if all(fits) else f"{_prefix(place)}{fits.count(False)} of the old {word} are not accepted"
            return
    for word in ("oneOf", "anyOf"):
        if word in new:
            rest = _without(new, word)
            if not any(not any(_reasons({**rest, **each}, old, roots, place, depth + 1)) for each in new[word]):
                yield f"{_prefix(place)}none of the new {word} accepts what was accepted"
            else:
                yield None
            return
    for each in new.get("allOf", ()):
        whole = _without(old, "allOf")
        parts = [whole, *({**whole, **part} for part in old.get("allOf", ()))]
        if all(any(_reasons(each, part, roots, place, depth + 1)) for part in parts):
            yield f"{_prefix(place)}a part of allOf does not accept all that was accepted"
    # The schema under `not` may only become narrower.
    if "not" in new and any(
        _reasons(old.get("not", False), new["not"], (roots[1], roots[0], roots[2]), place, depth + 1)
    ):
        yield f"{_prefix(place)}not was added or became wider"


def _types(new: Any, old: Any, place: str) -> Iterator[str]:
    lost = _kinds(old) - _kinds(new)
    if lost and not (lost == {"integer"} and "number" in _kinds(new)):
        yield f"{_prefix(place)}{', '.join(sorted(lost))} was accepted"


def _kinds(schema: Any) -> frozenset[str]:
    declared = schema.get("type")
    if declared is None:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        return _ALL if values is None else frozenset(_kind(each) for each in values)
    found = frozenset([declared] if isinstance(declared, str) else declared)
    return found | {"integer"} if "number" in found else found


def _kind(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _values(new: Any, old: Any, place: str) -> Iterator[str]:
    accepted, earlier = _listed(new), _listed(old)
    if accepted is not None:
        known = {_identity(each) for each in accepted}
        lost = None if earlier is None else [each for each in earlier if _identity(each) not in known]
        if lost is None:
            yield f"{_prefix(place)}only some values are accepted now"
        elif lost:
            yield f"{_prefix(place)}{json.dumps(lost)[:80]} was accepted"


def _identity(value: Any) -> str:
    """Return the same text for equal values of JSON, where 1 equals 1.0."""
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value, sort_keys=True)


def _listed(schema: Any) -> Any:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _bounds(new: Any, old: Any, place: str) -> Iterator[str]:
    for word in _MINIMUMS:
        if word in new and (word not in old or new[word] > old[word]):
            yield f"{_prefix(place)}{word} was {old.get(word, 'not set')}, and is {new[word]}"
    for word in _MAXIMUMS:
        if word in new and (word not in old or new[word] < old[word]):
            yield f"{_prefix(place)}{word} was {old.get(word, 'not set')}, and is {new[word]}"
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        yield f"{_prefix(place)}pattern was added or changed"
    if new.get("uniqueItems") and not old.get("uniqueItems"):
        yield f"{_prefix(place)}items must differ now"
    if "multipleOf" in new:
        divides = "multipleOf" in old and Fraction(str(old["multipleOf"])) % Fraction(str(new["multipleOf"])) == 0
        if not divides:
            yield f"{_prefix(place)}numbers must be multiples of {new['multipleOf']} now"


def _object(new: Any, old: Any, roots: Roots, place: str, depth: int) -> Iterator[str]:
    new_properties, old_properties = new.get("properties", {}), old.get("properties", {})
    for name, schema in new_properties.items():
        inside = f"{place}.{name}" if place else name
        if name in old_properties:
            yield from _reasons(schema, old_properties[name], roots, inside, depth + 1)
        else:
            # Where additional properties were allowed, this one may have been present already, with any value.
            for before in _others(old, name):
                yield from _reasons(schema, before, roots, inside, depth + 1)
    for name in old_properties.keys() - new_properties.keys():
        inside = f"{place}.{name}" if place else name
        for now in _others(new, name):
            yield from _reasons(now, old_properties[name], roots, inside, depth + 1)
    # Like registries, ignore required properties that are not described.
    for name in (set(new.get("required", ())) - set(old.get("required", ()))) & new_properties.keys():
        if not isinstance(new_properties[name], dict) or "default" not in new_properties[name]:
            yield f"{_prefix(f'{place}.{name}' if place else name)}the property is required now"
    yield from _reasons(
        new.get("additionalProperties", True), old.get("additionalProperties", True), roots, f"{place}.*", depth + 1
    )
    if new.get("patternProperties", {}) != old.get("patternProperties", {}):
        for pattern, schema in new.get("patternProperties", {}).items():
            before = old.get("patternProperties", {}).get(pattern, old.get("additionalProperties", True))
            yield from _reasons(schema, before, roots, f"{place}./{pattern}/", depth + 1)


def _others(schema: Any, name: str) -> list[Any]:
    """Schemas that a property without a description must match: those of fitting patterns, or additionalProperties."""
    fitting = [each for pattern, each in schema.get("patternProperties", {}).items() if _matches(pattern, name)]
    return fitting or [schema.get("additionalProperties", True)]


def _matches(pattern: str, name: str) -> bool:
    """Search in linear time: with Python's own patterns, a short one can take years."""
    import pyarrow as pa  # noqa: PLC0415 - only schemas with patterns need it
    import pyarrow.compute as pc  # noqa: PLC0415

    try:
        return bool(pc.match_substring_regex(pa.scalar(name), pattern).as_py())
    except pa.ArrowInvalid:
        raise InvalidSchema(f"the JSON Schema has a pattern that cannot be read: {pattern[:80]!r}") from None


def _list(new: Any, old: Any, roots: Roots, place: str, depth: int) -> Iterator[str]:
    """Compare item by item, then the schema of the remaining items."""
    (new_items, new_rest), (old_items, old_rest) = _items(new), _items(old)
    for at in range(max(len(new_items), len(old_items))):
        now = new_items[at] if at < len(new_items) else new_rest
        before = old_items[at] if at < len(old_items) else old_rest
        yield from _reasons(now, before, roots, f"{place}[{at}]", depth + 1)
    yield from _reasons(new_rest, old_rest, roots, f"{place}[]", depth + 1)


def _items(schema: Any) -> tuple[list[Any], Any]:
    """The schemas of the first items, and the schema of the remaining ones."""
    items = schema.get("items", True)
    if "prefixItems" in schema:
        return schema["prefixItems"], items
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return [], items if "items" in schema else schema.get("additionalItems", True)


def _dependencies(new: Any, old: Any, roots: Roots, place: str, depth: int) -> Iterator[str]:
    for word in ("dependencies", "dependentRequired", "dependentSchemas"):
        before = old.get(word, {})
        for name, dependency in new.get(word, {}).items():
            inside = f"{place}.{name}" if place else name
            if name not in before or isinstance(dependency, list) != isinstance(before[name], list):
                yield f"{_prefix(inside)}more properties depend on it now"
            elif not isinstance(dependency, list):
                yield from _reasons(dependency, before[name], roots, inside, depth + 1)
            elif set(dependency) - set(before[name]):
                yield f"{_prefix(inside)}it requires more properties now"


def _without(schema: Any, word: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != word}


def _resolve(schema: Any, root: Any) -> Any:
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict) or "$ref" not in schema:
            break
        name = schema["$ref"]
        if not isinstance(name, str) or not name.startswith("#"):
            raise InvalidSchema(f"the JSON Schema refers to {name!r}", hint="use only references within the schema")
        schema = root
        for part in name[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(schema, dict) or key not in schema:
                raise InvalidSchema(f"the JSON Schema refers to {name!r}, which it does not have")
            schema = schema[key]
    if not isinstance(schema, dict | bool):
        raise InvalidSchema("a JSON Schema is an object, true or false", detail=repr(schema)[:80])
    return schema


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidSchema("the JSON Schema is not JSON", detail=text[:80]) from None


def _prefix(place: str) -> str:
    return f"{place}: " if place else ""
