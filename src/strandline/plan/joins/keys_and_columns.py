"""Check the keys of a join, and name the columns of its result."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from strandline.errors import InvalidStep
from strandline.model.expressions import Expression, names_of
from strandline.model.expressions import expression as parse_condition
from strandline.model.joins import LEFT, RIGHT, How
from strandline.plan.nodes import Node
from strandline.plan.operators.contract import Columns

SUFFIX: Final = "_right"


@dataclass(frozen=True, slots=True)
class JoinedKeys:
    """The key columns of both streams, pair by pair."""

    left: tuple[str, ...]
    right: tuple[str, ...]


def joined_keys(left: Node, right: Node, names: tuple[str, ...], pairs: Mapping[str, str]) -> JoinedKeys:
    """Check the key columns of a join: they exist, and their types agree."""
    keys = JoinedKeys((*names, *pairs), (*names, *pairs.values()))
    if not keys.left:
        raise InvalidStep("on(…) names no column", hint='as in on("order_id"), or on(order_id="id") if names differ')
    if len({*keys.left}) < len(keys.left):
        raise InvalidStep("on(…) names a left column twice", hint="name each once")
    for one, other in zip(keys.left, keys.right, strict=True):
        kind, partner = type_of(left.columns, one, "left"), type_of(right.columns, other, "right")
        if kind is not None and partner is not None and kind != partner:
            raise InvalidStep(
                f"the keys {one!r} and {other!r} have different types",
                detail=f"{kind} on the left, {partner} on the right",
                hint=f'cast one of them, as in with_columns({other}="cast({other} as {kind})")',
            )
    return keys


def join_type(given: How | str) -> How:
    try:
        return How(given)
    except ValueError:
        raise InvalidStep(f"there is no join {given!r}", hint=f"choose one of {', '.join(How)}") from None


def joined_columns(
    left: Node, right: Node, keys: JoinedKeys, suffix: str
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str, str | None], ...]]:
    """Return the new names of right columns, and the columns of the result except the keys."""
    own = {name: kind for name, kind in left.columns.items() if name not in keys.left}
    other = {name: kind for name, kind in right.columns.items() if name not in keys.right}
    renamed = {name: f"{name}{suffix}" for name in other if name in own or name in keys.left}
    taken = {*own, *keys.left, *(name for name in other if name not in renamed)}
    for name, new in renamed.items():
        if new in taken:
            raise InvalidStep(
                f"both streams have a column {name!r}, and {new!r} is taken too",
                hint='choose another suffix, as in within(…, suffix="_payment")',
            )
    columns = [(LEFT, name, kind) for name, kind in own.items()]
    columns += [(RIGHT, renamed.get(name, name), kind) for name, kind in other.items()]
    return tuple(renamed.items()), tuple(columns)


def join_condition(text: str, keys: JoinedKeys, columns: tuple[tuple[str, str, str | None], ...]) -> Expression:
    parsed = parse_condition(text)
    known = dict.fromkeys([*keys.left, *(name for _, name, _ in columns)])
    for name in sorted(names_of(parsed.tree), key=lambda each: (each.scope, each.name)):
        if name.scope:
            raise InvalidStep(f"the condition names {name.scope}.{name.name}", hint=f"write {name.name} alone")
        type_of(known, name.name, "result of the join, which the condition reads,")
    return parsed


def type_of(columns: Columns, name: str, where: str) -> str | None:
    if name in columns:
        return columns[name]
    close = get_close_matches(name, columns, 1)
    hint = f"did you mean {close[0]!r}?" if close else "check the name"
    what = f"the {where} stream has no column" if where in (LEFT, RIGHT) else f"the {where} has no column"
    raise InvalidStep(f"{what} {name!r}", detail=f"it has {', '.join(columns)}", hint=hint)
