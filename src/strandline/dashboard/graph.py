"""Read a job's graph from the definition in its folder: sources, keyed steps, sinks, and their edges."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from strandline.dashboard import api_types

SPENT_BY: Final = {
    "source": ("source", "plan", "read", "prepare"),
    "step": ("shuffle", "state", "step"),
    "sink": ("deliver", "commit"),
}
"""The stages of a batch in which each kind of node spends its time."""

_NAME_FIELDS: Final = ("name", "topics", "topic", "table", "path", "url")
_LONGEST: Final = 60


@dataclass(slots=True)
class _GraphBuilder:
    """The graph so far. Nodes are identified by content, so that branches share their common part."""

    nodes: dict[str, tuple[str, str, str, int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """A job's definition as its folder stores it."""

    fingerprint: str = ""
    lineage: str = ""
    stages: str = ""
    definition: Any = None
    key_groups: int | None = None


def read_definition(folder: Path) -> JobDefinition:
    try:
        content = json.loads((folder / "strandline.json").read_text(encoding="utf-8"))
        return JobDefinition(
            str(content["fingerprint"]), str(content["lineage"]), str(content["stages"]), content.get("definition"),
            content.get("key_groups") if isinstance(content.get("key_groups"), int) else None,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return JobDefinition()


def graph(
    definition: JobDefinition, stages: Sequence[api_types.StageTime], busy: Mapping[str, float], limit: str
) -> api_types.Graph:
    """Lay out the definition as nodes in columns; a node's share of time is that of all nodes of its kind."""
    builder = _GraphBuilder()
    _draw(definition.definition, builder)
    shares = {stage.name: stage.share for stage in stages}
    nodes = []
    last = max((column for kind, _, _, column in builder.nodes.values() if kind != "sink"), default=0) + 1
    for id_, (kind, label, detail, column) in builder.nodes.items():
        share = sum(shares.get(name, 0.0) for name in SPENT_BY[kind]) if shares else None
        place = last if kind == "sink" else column
        nodes.append(api_types.GraphNode(id_, kind, label, detail, place, share))  # type: ignore[arg-type]
    return api_types.Graph(
        tuple(nodes), tuple(dict.fromkeys(builder.edges)), tuple(stages), busy, limit, definition.stages
    )


def endpoint_names(definition: JobDefinition, kind: str) -> tuple[str, ...]:
    """The sources or the sinks of a job."""
    builder = _GraphBuilder()
    _draw(definition.definition, builder)
    return tuple(
        f"{label}: {detail}" if detail else label for is_, label, detail, _ in builder.nodes.values() if is_ == kind
    )


def sinks_in(definition: JobDefinition) -> Iterator[Mapping[str, Any]]:
    """The sinks in a job's definition."""
    root = definition.definition
    if isinstance(root, Mapping):
        for output in root.get("outputs", [root]) if root.get("is") == "Together" else [root]:
            if isinstance(output, Mapping) and isinstance(output.get("sink"), Mapping):
                yield output["sink"]


def _draw(node: Any, builder: _GraphBuilder) -> tuple[list[str], int]:
    """Draw a node's inputs, then the node; return the ids that rows come from, and their column."""
    if not isinstance(node, Mapping):
        return [], 0
    match node.get("is"):
        case "Together":
            for output in node.get("outputs", ()):
                _draw(output, builder)
            return [], 0
        case "Union":
            fed = [_draw(each, builder) for each in node.get("streams", ())]
            return [id_ for ids, _ in fed for id_ in ids], max((column for _, column in fed), default=0)
        case "Read":
            return [_add(builder, node, "source", *_label_of(node.get("source")), 0)], 0
        case "Aggregated":
            before, column = _draw(node.get("of"), builder)
            return _draw_step(node, node.get("step"), node.get("keys", ()), before, column, builder)
        case "Keyed":
            streams = [each for each in node.get("streams", ()) if isinstance(each, Mapping)]
            fed = [_draw(each.get("of"), builder) for each in streams]
            before = [id_ for ids, _ in fed for id_ in ids]
            column = max((column for _, column in fed), default=0)
            keys = streams[0].get("keys", ()) if streams else ()
            return _draw_step(node, node.get("operator"), keys, before, column, builder)
        case "Write":
            before, column = _draw(node.get("of"), builder)
            label, detail = _label_of(node.get("sink"))
            return [_link(builder, before, _add(builder, node, "sink", label, detail, column + 1))], column + 1
        case _:
            return _draw(node.get("of"), builder)


def _draw_step(
    node: Any, operator: Any, keys: Sequence[Any], before: Sequence[str], column: int, builder: _GraphBuilder
) -> tuple[list[str], int]:
    """Draw a keyed step: what it computes, and by which keys."""
    known = operator if isinstance(operator, Mapping) else {}
    values = [str(pair[0]) for pair in known.get("aggregates", ())]
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(known.get("is", "keyed step"))).lower()
    label = ", ".join(values) or kind
    detail = f"by {', '.join(map(str, keys))}"
    return [_link(builder, before, _add(builder, node, "step", label, detail, column + 1))], column + 1


def _add(builder: _GraphBuilder, node: Any, kind: str, label: str, detail: str, column: int) -> str:
    same = json.dumps(node, sort_keys=True, default=str)
    id_ = builder.names.setdefault(same, f"{kind} {len(builder.names) + 1}")
    builder.nodes.setdefault(id_, (kind, label[:_LONGEST], detail[:_LONGEST], column))
    return id_


def _link(builder: _GraphBuilder, before: Sequence[str], id_: str) -> str:
    builder.edges += [(each, id_) for each in before]
    return id_


def _label_of(endpoint: Any) -> tuple[str, str]:
    """An endpoint's type and name; nothing else is shown, so that no secret can be."""
    if not isinstance(endpoint, Mapping):
        return "unknown", ""
    called = next((endpoint[name] for name in _NAME_FIELDS if endpoint.get(name)), "")
    text = ", ".join(map(str, called)) if isinstance(called, list) else str(called)
    return str(endpoint.get("is", "unknown")), hidden(text)


def hidden(text: str) -> str:
    """Hide possible passwords: what is before an @ in an address, or after a question mark."""
    scheme, found, rest = text.partition("://")
    if not found:
        return text
    host = rest.partition("?")[0].rpartition("@")[2]
    return f"{scheme}://{host}"
