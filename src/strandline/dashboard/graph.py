"""A job's shape, from the definition that lies in its folder: sources, keyed steps, sinks, and who feeds whom."""

import json
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
"""Which stages of a batch those of a kind spend their time in."""

_CALLED: Final = ("name", "topics", "topic", "table", "path", "url")
_LONGEST: Final = 60


@dataclass(slots=True)
class _Drawing:
    """What was found so far: nodes by what they are, so that a branch shares what it branches from."""

    nodes: dict[str, tuple[str, str, str, int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class About:
    """What a job's folder says of its definition."""

    fingerprint: str = ""
    lineage: str = ""
    stages: str = ""
    definition: Any = None
    key_groups: int | None = None


def about(folder: Path) -> About:
    try:
        told = json.loads((folder / "strandline.json").read_text(encoding="utf-8"))
        return About(
            str(told["fingerprint"]), str(told["lineage"]), str(told["stages"]), told.get("definition"),
            told.get("key_groups") if isinstance(told.get("key_groups"), int) else None,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return About()


def graph(
    known: About, stages: Sequence[api_types.StageTime], busy: Mapping[str, float], limit: str
) -> api_types.Graph:
    """The definition as nodes in columns; the share of a batch's time is that of all nodes of a kind together."""
    drawing = _Drawing()
    _draw(known.definition, drawing)
    shares = {stage.name: stage.share for stage in stages}
    nodes = []
    last = max((column for kind, _, _, column in drawing.nodes.values() if kind != "sink"), default=0) + 1
    for id_, (kind, label, detail, column) in drawing.nodes.items():
        share = sum(shares.get(name, 0.0) for name in SPENT_BY[kind]) if shares else None
        place = last if kind == "sink" else column
        nodes.append(api_types.GraphNode(id_, kind, label, detail, place, share))  # type: ignore[arg-type]
    return api_types.Graph(tuple(nodes), tuple(dict.fromkeys(drawing.edges)), tuple(stages), busy, limit, known.stages)


def names_of(known: About, kind: str) -> tuple[str, ...]:
    """The sources or the sinks of a job."""
    drawing = _Drawing()
    _draw(known.definition, drawing)
    return tuple(
        f"{label}: {detail}" if detail else label for is_, label, detail, _ in drawing.nodes.values() if is_ == kind
    )


def written_to(known: About) -> Iterator[Mapping[str, Any]]:
    """The sinks of a job, as the definition holds them."""
    root = known.definition
    if isinstance(root, Mapping):
        for output in root.get("outputs", [root]) if root.get("is") == "Together" else [root]:
            if isinstance(output, Mapping) and isinstance(output.get("sink"), Mapping):
                yield output["sink"]


def _draw(node: Any, drawing: _Drawing) -> tuple[list[str], int]:
    """Draws what a node stands on, then itself; the ids that rows come from, and the column they are in."""
    if not isinstance(node, Mapping):
        return [], 0
    match node.get("is"):
        case "Together":
            for output in node.get("outputs", ()):
                _draw(output, drawing)
            return [], 0
        case "Union":
            fed = [_draw(each, drawing) for each in node.get("streams", ())]
            return [id_ for ids, _ in fed for id_ in ids], max((column for _, column in fed), default=0)
        case "Read":
            return [_add(drawing, node, "source", *_named(node.get("source")), 0)], 0
        case "Aggregated":
            before, column = _draw(node.get("of"), drawing)
            return _draw_step(node, node.get("step"), node.get("keys", ()), before, column, drawing)
        case "Keyed":
            streams = [each for each in node.get("streams", ()) if isinstance(each, Mapping)]
            fed = [_draw(each.get("of"), drawing) for each in streams]
            before = [id_ for ids, _ in fed for id_ in ids]
            column = max((column for _, column in fed), default=0)
            keys = streams[0].get("keys", ()) if streams else ()
            return _draw_step(node, node.get("operator"), keys, before, column, drawing)
        case "Write":
            before, column = _draw(node.get("of"), drawing)
            label, detail = _named(node.get("sink"))
            return [_link(drawing, before, _add(drawing, node, "sink", label, detail, column + 1))], column + 1
        case _:
            return _draw(node.get("of"), drawing)


def _draw_step(
    node: Any, operator: Any, keys: Sequence[Any], before: Sequence[str], column: int, drawing: _Drawing
) -> tuple[list[str], int]:
    """Draw a keyed step: what it computes, and by which keys."""
    known = operator if isinstance(operator, Mapping) else {}
    values = [str(pair[0]) for pair in known.get("aggregates", ())]
    label = ", ".join(values) or str(known.get("is", "keyed step")).lower()
    detail = f"by {', '.join(map(str, keys))}"
    return [_link(drawing, before, _add(drawing, node, "step", label, detail, column + 1))], column + 1


def _add(drawing: _Drawing, node: Any, kind: str, label: str, detail: str, column: int) -> str:
    same = json.dumps(node, sort_keys=True, default=str)
    id_ = drawing.names.setdefault(same, f"{kind} {len(drawing.names) + 1}")
    drawing.nodes.setdefault(id_, (kind, label[:_LONGEST], detail[:_LONGEST], column))
    return id_


def _link(drawing: _Drawing, before: Sequence[str], id_: str) -> str:
    drawing.edges += [(each, id_) for each in before]
    return id_


def _named(endpoint: Any) -> tuple[str, str]:
    """What an endpoint is and what it is called; nothing else of it is shown, so no secret can be."""
    if not isinstance(endpoint, Mapping):
        return "unknown", ""
    called = next((endpoint[name] for name in _CALLED if endpoint.get(name)), "")
    told = ", ".join(map(str, called)) if isinstance(called, list) else str(called)
    return str(endpoint.get("is", "unknown")), hidden(told)


def hidden(text: str) -> str:
    """Without what may be a password: whatever stands before an @ in an address, and behind a question mark."""
    scheme, found, rest = text.partition("://")
    if not found:
        return text
    host = rest.partition("?")[0].rpartition("@")[2]
    return f"{scheme}://{host}"
