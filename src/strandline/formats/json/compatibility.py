"""Whether every JSON value that one JSON Schema accepts is accepted by another: the keywords in common use.

Judged: type, enum, const, bounds of numbers, texts, lists and objects, pattern, multipleOf, uniqueItems, properties,
required, additionalProperties, patternProperties, items, prefixItems, additionalItems, dependencies, allOf, anyOf,
oneOf, not, and $ref within the schema. Of other keywords that restrict values only this is known: left as they are,
they do no harm; anything else counts against. Where the logic of keywords and the Confluent registry differ, it is
followed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from strandline.errors import InvalidSchema

_ALL: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_LEAST: Final = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum")
_MOST: Final = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum")
_UNJUDGED: Final = (
    "if", "then", "else", "contains", "minContains", "maxContains", "propertyNames", "unevaluatedProperties",
    "unevaluatedItems",
)  # fmt: skip
_DEEPEST: Final = 64

Uses = Mapping[str, str]
Roots = tuple[Any, Any]


def can_read_json(reader: str, writer: str, *_: Uses) -> list[str]:
    """Why the reader's schema does not accept all that the writer's does; nothing if it does."""
    new, old = _parsed(reader), _parsed(writer)
    return list(_why(new, old, (new, old), "", 0))


def _why(new: Any, old: Any, roots: Roots, place: str, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    new, old = _followed(new, roots[0]), _followed(old, roots[1])
    if new is True or new == {} or old is False:
        return
    if new is False:
        yield f"{_at(place)}nothing is accepted any more"
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
    for word in _UNJUDGED:
        if word in new and new[word] != old.get(word):
            yield f"{_at(place)}{word} changed, and is not judged"


def _branches(new: Any, old: Any, roots: Roots, place: str, depth: int) -> Iterator[str | None]:
    """None first if the question is settled: each thing the old one may be is accepted by something of the new."""
    if ("allOf" in new or ("anyOf" in old and "oneOf" in new)) and {"oneOf", "anyOf"} & old.keys() - new.keys():
        yield f"{_at(place)}a choice was made into something narrower"
        return
    if "allOf" in old and "allOf" not in new:
        whole = _rest(old, "allOf")
        if any(not any(_why(new, {**whole, **part}, roots, place, depth + 1)) for part in old["allOf"]):
            yield None
            return
    for word in ("oneOf", "anyOf"):
        if word in old:
            fits = [not any(_why(new, {**_rest(old, word), **each}, roots, place, depth + 1)) for each in old[word]]
            yield None if all(fits) else f"{_at(place)}{fits.count(False)} of the old {word} are not accepted"
            return
    for word in ("oneOf", "anyOf"):
        if word in new:
            rest = _rest(new, word)
            if not any(not any(_why({**rest, **each}, old, roots, place, depth + 1)) for each in new[word]):
                yield f"{_at(place)}none of the new {word} accepts what was accepted"
            else:
                yield None
            return
    for each in new.get("allOf", ()):
        whole = _rest(old, "allOf")
        parts = [whole, *({**whole, **part} for part in old.get("allOf", ()))]
        if all(any(_why(each, part, roots, place, depth + 1)) for part in parts):
            yield f"{_at(place)}a part of allOf does not accept all that was accepted"
    # What must not be may only become less.
    if "not" in new and any(_why(old.get("not", False), new["not"], (roots[1], roots[0]), place, depth + 1)):
        yield f"{_at(place)}not was added or became more"


def _types(new: Any, old: Any, place: str) -> Iterator[str]:
    lost = _kinds(old) - _kinds(new)
    if lost and not (lost == {"integer"} and "number" in _kinds(new)):
        yield f"{_at(place)}{', '.join(sorted(lost))} was accepted"


def _kinds(schema: Any) -> frozenset[str]:
    said = schema.get("type")
    if said is None:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        return _ALL if values is None else frozenset(_kind(each) for each in values)
    found = frozenset([said] if isinstance(said, str) else said)
    return found | {"integer"} if "number" in found else found


def _kind(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _values(new: Any, old: Any, place: str) -> Iterator[str]:
    ours, theirs = _listed(new), _listed(old)
    if ours is not None:
        lost = None if theirs is None else [each for each in theirs if each not in ours]
        if lost is None:
            yield f"{_at(place)}only some values are accepted now"
        elif lost:
            yield f"{_at(place)}{json.dumps(lost)[:80]} was accepted"


def _listed(schema: Any) -> Any:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _bounds(new: Any, old: Any, place: str) -> Iterator[str]:
    for word in _LEAST:
        if word in new and (word not in old or new[word] > old[word]):
            yield f"{_at(place)}{word} was {old.get(word, 'not set')}, and is {new[word]}"
    for word in _MOST:
        if word in new and (word not in old or new[word] < old[word]):
            yield f"{_at(place)}{word} was {old.get(word, 'not set')}, and is {new[word]}"
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        yield f"{_at(place)}pattern was added or changed"
    if new.get("uniqueItems") and not old.get("uniqueItems"):
        yield f"{_at(place)}items must differ now"
    if "multipleOf" in new:
        divides = "multipleOf" in old and Fraction(str(old["multipleOf"])) % Fraction(str(new["multipleOf"])) == 0
        if not divides:
            yield f"{_at(place)}numbers must be multiples of {new['multipleOf']} now"


def _object(new: Any, old: Any, roots: Roots, place: str, depth: int) -> Iterator[str]:
    ours, theirs = new.get("properties", {}), old.get("properties", {})
    for name, schema in ours.items():
        inside = f"{place}.{name}" if place else name
        if name in theirs:
            yield from _why(schema, theirs[name], roots, inside, depth + 1)
        else:
            # Where other properties were allowed, this one may have been there already, with any value.
            for before in _others(old, name):
                yield from _why(schema, before, roots, inside, depth + 1)
    for name in theirs.keys() - ours.keys():
        inside = f"{place}.{name}" if place else name
        for now in _others(new, name):
            yield from _why(now, theirs[name], roots, inside, depth + 1)
    # As registries do: a property that is required and not described is not looked at.
    for name in (set(new.get("required", ())) - set(old.get("required", ()))) & ours.keys():
        if not isinstance(ours[name], dict) or "default" not in ours[name]:
            yield f"{_at(f'{place}.{name}' if place else name)}the property is required now"
    yield from _why(
        new.get("additionalProperties", True), old.get("additionalProperties", True), roots, f"{place}.*", depth + 1
    )
    if new.get("patternProperties", {}) != old.get("patternProperties", {}):
        for pattern, schema in new.get("patternProperties", {}).items():
            before = old.get("patternProperties", {}).get(pattern, old.get("additionalProperties", True))
            yield from _why(schema, before, roots, f"{place}./{pattern}/", depth + 1)


def _others(schema: Any, name: str) -> list[Any]:
    """What a property that is not described must be: all patterns that fit its name, or what the others are."""
    fitting = [each for pattern, each in schema.get("patternProperties", {}).items() if _fits(pattern, name)]
    return fitting or [schema.get("additionalProperties", True)]


def _fits(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        raise InvalidSchema(f"the JSON Schema has a pattern that cannot be read: {pattern!r}") from None


def _list(new: Any, old: Any, roots: Roots, place: str, depth: int) -> Iterator[str]:
    """Item by item, then all that follow."""
    (ours, our_rest), (theirs, their_rest) = _items(new), _items(old)
    for at in range(max(len(ours), len(theirs))):
        now = ours[at] if at < len(ours) else our_rest
        before = theirs[at] if at < len(theirs) else their_rest
        yield from _why(now, before, roots, f"{place}[{at}]", depth + 1)
    yield from _why(our_rest, their_rest, roots, f"{place}[]", depth + 1)


def _items(schema: Any) -> tuple[list[Any], Any]:
    """The first items, each with a schema of its own, and the schema of the rest."""
    items = schema.get("items", True)
    if "prefixItems" in schema:
        return schema["prefixItems"], items
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return [], items if "items" in schema else schema.get("additionalItems", True)


def _dependencies(new: Any, old: Any, roots: Roots, place: str, depth: int) -> Iterator[str]:
    for word in ("dependencies", "dependentRequired", "dependentSchemas"):
        before = old.get(word, {})
        for name, asked in new.get(word, {}).items():
            inside = f"{place}.{name}" if place else name
            if name not in before or isinstance(asked, list) != isinstance(before[name], list):
                yield f"{_at(inside)}more depends on it now"
            elif not isinstance(asked, list):
                yield from _why(asked, before[name], roots, inside, depth + 1)
            elif set(asked) - set(before[name]):
                yield f"{_at(inside)}more is required beside it now"


def _rest(schema: Any, word: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != word}


def _followed(schema: Any, root: Any) -> Any:
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict) or "$ref" not in schema:
            break
        name = schema["$ref"]
        if not isinstance(name, str) or not name.startswith("#"):
            raise InvalidSchema(f"the JSON Schema refers to {name!r}", hint="only references within it are followed")
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
        raise InvalidSchema("the JSON Schema is no JSON", detail=text[:80]) from None


def _at(place: str) -> str:
    return f"{place}: " if place else ""
