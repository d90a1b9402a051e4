"""Refuse rows that would overwrite each other in a sink that writes by key, so that its table would be wrong."""

from strandline.errors import InvalidStep
from strandline.plan.nodes import Root
from strandline.plan.operators.contract import Refinement
from strandline.plan.refinement.upserts import Upserted, upserted

_WAYS_OUT = (
    "call accumulate(sl.accumulating) or accumulate(sl.retracting) before aggregate(…), or write to a sink that appends"
)


def refuse_overwriting(root: Root) -> Root:
    """Check that a later row under a key of an upsert sink is the later result of the same key and window."""
    for each in upserted(root):
        _refuse_parts(each)
        _refuse_several(each)
        _refuse_moved_windows(each)
        _refuse_missing_keys(each)
        _refuse_missing_window(each)
    return root


def _refuse_parts(each: Upserted) -> None:
    if each.origin.plan.refinement is Refinement.PARTS:
        raise InvalidStep(
            f"{each.write.sink.name} keeps one row for each key, and panes of {each.origin.name} would overwrite each "
            "other: each holds only a part of its window's result",
            detail=each.origin.plan.explain_step(),
            hint=_WAYS_OUT,
        )


def _refuse_moved_windows(each: Upserted) -> None:
    plan = each.origin.plan
    if plan.moves_windows and plan.refinement is Refinement.REPLACEMENTS and each.window_columns:
        raise InvalidStep(
            f"{each.write.sink.name} would keep stale rows: sessions of {each.origin.name} grow, and rows under their "
            "earlier bounds stay",
            detail=plan.explain_step(),
            hint="call accumulate(sl.retracting), which deletes them",
        )


def _refuse_several(each: Upserted) -> None:
    if each.has_default_key and each.origin.plan.refinement is Refinement.SEVERAL:
        raise InvalidStep(
            f"{each.write.sink.name} writes by the keys of {each.origin.name}, which emits several rows for a key",
            detail="they would overwrite each other",
            hint="name the columns that identify a row: key=[…], or write to a sink that appends",
        )


def _refuse_missing_keys(each: Upserted) -> None:
    if not each.has_default_key:
        return
    sink, origin = each.write.sink.name, each.origin.name
    if each.missing_keys:
        raise InvalidStep(
            f"{sink} writes by the keys of {origin}, and its rows no longer have {', '.join(each.missing_keys)}",
            detail="rows of several keys would overwrite each other",
            hint="keep the key columns, or name the columns that identify a row: key=[…]",
        )
    if each.rows.is_multiplied:
        raise InvalidStep(
            f"{sink} writes by the keys of {origin}, and flat_map may make several rows of one",
            detail="rows of one key and window would overwrite each other",
            hint="name the columns that identify a row: key=[…]",
        )


def _refuse_missing_window(each: Upserted) -> None:
    if each.has_windows and not each.upsert.compares_windows and not each.window_columns:
        raise InvalidStep(
            f"{each.write.sink.name} keys its records by {', '.join(each.key)}, without the window",
            detail="a late pane of an earlier window would replace the record of a later one",
            hint="add window_start to the key, or write to a database",
        )
