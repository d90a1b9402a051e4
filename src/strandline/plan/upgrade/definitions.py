"""Find the sources, keyed steps and sinks in a stored definition, without the code of the pipeline.

A checkpoint stores the result of `to_plain`, and nothing else about an older pipeline. Nodes are in the order of
`walk`, so their numbers are those of the compiled stages.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

Plain = dict[str, Any]

KEYED: Final = ("Aggregated", "Keyed")
"""Stored names of keyed steps: the first for windowed steps, the second for all others."""
_READING: Final = frozenset({"value", "columns", "decoder", "format", "header", "metadata"})
"""Fields of a source that say how records are decoded. The other fields identify the records."""


@dataclass(frozen=True, slots=True)
class Way:
    """A path to a keyed step: its origin, operations and event time; the stored form of `LineagePath`."""

    origin: Plain
    operations: tuple[Plain, ...] = ()
    time: Plain | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """The sources, keyed steps and sinks of a pipeline, each by number."""

    sources: tuple[Plain, ...]
    steps: tuple[Plain, ...]
    sinks: tuple[Plain, ...]
    """Sinks of outputs, then sinks of late elements."""


def read_definition(plain: Any) -> Definition:
    """Return the parts of a stored definition; no parts if there is none."""
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


def paths_to_step(step: Plain) -> list[Way]:
    """Return the paths to a keyed step, from sources or from other keyed steps."""
    return [path for stream in step["streams"] for path in _paths(stream["of"])]


def _as_keyed(node: Plain) -> Plain:
    """Return a keyed step with its inputs by role; a windowed step is stored with one input and no role."""
    if node["is"] == "Keyed":
        return {**node, "keys": node["streams"][0]["keys"]}
    stream = {"is": "KeyedInput", "role": "input", "of": node["of"], "keys": node["keys"]}
    rest = {name: each for name, each in node.items() if name not in ("is", "of", "step")}
    return {**rest, "is": "Keyed", "streams": [stream], "operator": node["step"]}


def source_identity(source: Plain) -> str:
    """Return the identity of a source without its decoding. Positions are valid between equal sources."""
    kept = {name: each for name, each in source.items() if name not in _READING}
    return json.dumps(kept, sort_keys=True)


def name_of(source: Plain) -> str:
    """Return the name of a source or a sink, as in `kafka(scores)`."""
    names = [source.get(name) for name in ("name", "topics", "topic", "path", "table")]
    name = next((each for each in names if each), None)
    where = ", ".join(map(str, name)) if isinstance(name, list) else name
    return f"{str(source['is']).lower()}({where})" if where else str(source["is"]).lower()


def _paths(node: Plain) -> list[Way]:
    match node["is"]:
        case "Read":
            return [Way(node)]
        case "Aggregated" | "Keyed":
            return [Way(_as_keyed(node))]
        case "Union":
            return [path for stream in node["streams"] for path in _paths(stream)]
        case "Stateless":
            return [Way(path.origin, (*path.operations, node["operation"]), path.time) for path in _paths(node["of"])]
        case "EventTime":
            time = {name: each for name, each in node.items() if name != "of"}
            return [Way(path.origin, path.operations, time) for path in _paths(node["of"])]
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
