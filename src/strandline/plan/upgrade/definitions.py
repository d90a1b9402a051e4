"""A definition as it was written down: its sources, keyed steps and sinks, found without the code that made it.

What `to_plain` gives is all that a checkpoint knows of an older pipeline. The order is that of `walk`, so a number here
is the number that the compiled stages have.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

Plain = dict[str, Any]

KEYED: Final = ("Aggregated", "Keyed")
"""What keyed steps are called: windowed steps by their first name, all others by the second."""
_READING: Final = frozenset({"value", "columns", "decoder", "format", "header", "metadata"})
"""Of a source: how its records are read. Everything else says which records those are."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to a keyed step or an output: where its rows come from, what happens on it, and their time."""

    origin: Plain
    operations: tuple[Plain, ...] = ()
    time: Plain | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """What a pipeline reads, keeps and writes, each by number."""

    sources: tuple[Plain, ...]
    steps: tuple[Plain, ...]
    sinks: tuple[Plain, ...]
    """Those of the outputs, then those of late elements."""


def read_definition(plain: Any) -> Definition:
    """The parts of a definition; of none, if there is none."""
    nodes: list[Plain] = []
    for node in _walk(plain):
        if node not in nodes:
            nodes.append(node)
    reads = [node["source"] for node in nodes if node["is"] == "Read"]
    steps = [_as_keyed(node) for node in nodes if node["is"] in KEYED]
    rests = [node["rest"] for node in steps if node.get("rest") is not None]
    writes = [node for node in nodes if node["is"] == "Write"]
    ordered = plain["outputs"] if isinstance(plain, dict) and plain.get("is") == "Together" else writes
    sources = [source for number, source in enumerate(reads) if source not in reads[:number]]
    return Definition(tuple(sources), tuple(steps), (*(each["sink"] for each in ordered), *rests))


def ways_to(step: Plain) -> list[Way]:
    """Return the ways that lead to a keyed step, from sources or from other keyed steps."""
    return [way for stream in step["streams"] for way in _ways(stream["of"])]


def _as_keyed(node: Plain) -> Plain:
    """Return a keyed step with its inputs by role; a windowed step is stored with one input and no role."""
    if node["is"] == "Keyed":
        return {**node, "keys": node["streams"][0]["keys"]}
    stream = {"is": "KeyedInput", "role": "input", "of": node["of"], "keys": node["keys"]}
    rest = {name: each for name, each in node.items() if name not in ("is", "of", "step")}
    return {**rest, "is": "Keyed", "streams": [stream], "operator": node["step"]}


def place_of(source: Plain) -> str:
    """What a source is, however its records are read: positions of one mean something to another that is the same."""
    kept = {name: each for name, each in source.items() if name not in _READING}
    return json.dumps(kept, sort_keys=True)


def name_of(source: Plain) -> str:
    """How a source or a sink is called."""
    known = [source.get(name) for name in ("name", "topics", "topic", "path", "table")]
    told = next((each for each in known if each), None)
    where = ", ".join(map(str, told)) if isinstance(told, list) else told
    return f"{str(source['is']).lower()}({where})" if where else str(source["is"]).lower()


def _ways(node: Plain) -> list[Way]:
    match node["is"]:
        case "Read":
            return [Way(node)]
        case "Aggregated" | "Keyed":
            return [Way(_as_keyed(node))]
        case "Union":
            return [way for stream in node["streams"] for way in _ways(stream)]
        case "Stateless":
            return [Way(way.origin, (*way.operations, node["operation"]), way.time) for way in _ways(node["of"])]
        case "EventTime":
            time = {name: each for name, each in node.items() if name != "of"}
            return [Way(way.origin, way.operations, time) for way in _ways(node["of"])]
    return []


def _walk(node: Any) -> Iterator[Plain]:
    if not isinstance(node, dict) or "is" not in node:
        return
    before = node.get("outputs") or node.get("streams") or ([node["of"]] if "of" in node else [])
    if node["is"] == "Keyed":
        before = [stream["of"] for stream in before]
    for each in before:
        yield from _walk(each)
    if node["is"] != "Together":
        yield node
