"""Warn about rows that the next step or the sink would not take as what they are."""

from collections.abc import Iterator

from strandline.model.elements import ZERO, Duration
from strandline.model.lookup_join import LookupJoin
from strandline.plan.endpoints import latest_view_of, upsert_key_of
from strandline.plan.lineage import LineagePath, paths_to
from strandline.plan.nodes import KeyedNode, Read, Root, Stateless, Write, outputs_of, walk
from strandline.plan.operators.contract import Refinement
from strandline.plan.refinement.row_trace import keeps_windows, trace
from strandline.plan.refinement.upserts import Upserted, upserted


def cautions_of(root: Root) -> tuple[str, ...]:
    """Return warnings about the connections of a pipeline, each with a remedy."""
    found: list[str] = []
    for node in walk(root):
        if isinstance(node, KeyedNode):
            for path in (path for stream in node.inputs for path in paths_to(stream)):
                if isinstance(path.origin, KeyedNode):
                    found += _between(path.origin, path, node)
    for write in outputs_of(root):
        found += _appended(write)
        found += _of_several(write)
        found += _replayed(write)
    for each in upserted(root):
        found += _overwritten(each)
    return tuple(dict.fromkeys(found))


def has_latest_view(write: Write) -> bool:
    """Tell whether the newest row of a key and window is its result, so that a view of the latest rows is right."""
    origins = [path.origin for path in paths_to(write.of) if isinstance(path.origin, KeyedNode)]
    return all(origin.plan.refinement is not Refinement.PARTS for origin in origins)


def kept_rows(write: Write) -> str | None:
    """Describe which rows an upsert sink keeps, if not one row for each key and window."""
    upsert = upsert_key_of(write.sink)
    if upsert is None:
        return None
    if not any(isinstance(path.origin, KeyedNode) for path in paths_to(write.of)):
        return f"one row for each {', '.join(upsert.columns)}: the last that arrived"
    for each in upserted(write):
        key = ", ".join(each.key)
        if each.has_windows and not each.window_columns:
            return f"one row for each {key}: that of its latest window"
    return None


def _between(before: KeyedNode, path: LineagePath, node: KeyedNode) -> Iterator[str]:
    """Warn about rows of a step that the next one refuses as late, or misreads."""
    rows = trace(path, before)
    if rows.is_salted:
        return
    behind, allowed = before.plan.rows_behind, node.plan.allowed_lateness
    if allowed is not None and (behind is None or behind > allowed):
        yield _late_text(before, node, behind, allowed)
    if before.plan.refinement is Refinement.PARTS:
        combined = before.plan.combined_by
        own = {name: combined[of] for name, of in rows.copies if of in combined and not rows.is_computed}
        misread = node.plan.misread_parts(own, rows.fixed)
        if misread or rows.value_filters or not keeps_windows(before.plan):
            what = ", ".join(misread) or "".join(rows.value_filters[:1]) or "which windows they are in"
            yield (
                f"panes of {before.name} are parts of results, and {node.name} takes each as a whole: {what} would be "
                f"wrong; make {before.name} retracting"
            )
    corrects = before.plan.refinement in (Refinement.CHANGELOG, Refinement.SEVERAL) and before.plan.retracts
    if corrects and node.plan.declared:
        why = [*(key for key in node.keys if key not in rows.fixed), *rows.value_filters, *rows.pane_filters]
        why += ["a function"] if rows.is_computed else []
        # Rows that are elements have their own time, and sessions move: a correction may be in another window.
        why += [] if before.plan.declared and keeps_windows(before.plan) else ["the time of a row"]
        if why:
            yield (
                f"rows of {before.name} may leave a key and window of {node.name} by a change of {', '.join(why)}: one "
                "that has lost all its rows keeps a row with the values of an empty window"
            )


def _late_text(before: KeyedNode, node: KeyedNode, behind: Duration | None, allowed: Duration) -> str:
    accepts = "no lateness" if allowed == ZERO else f"a lateness of {allowed}"
    if behind is None:
        return (
            f"corrections of {before.name} may be any time behind the watermark, and {node.name} allows {accepts}: "
            "corrections that are later go to the late output and are not in its results"
        )
    return (
        f"corrections of {before.name} may be {behind} behind the watermark, and {node.name} allows {accepts}: later "
        f'ones go to the late output and are not in its results; call allow_lateness("{behind}")'
    )


def _appended(write: Write) -> Iterator[str]:
    """Warn that panes which are parts of results have no latest result."""
    view = latest_view_of(write.sink)
    for path in paths_to(write.of):
        origin = path.origin
        if not isinstance(origin, KeyedNode) or origin.plan.refinement is not Refinement.PARTS:
            continue
        if not keeps_windows(origin.plan):
            yield (
                f"panes of {origin.name} are parts of sessions, each under the bounds that its session had: rows "
                "cannot be added up by window; call accumulate(sl.retracting)"
            )
        elif view is not None:
            yield (
                f"panes of {origin.name} are parts of results, so {view} does not exist: add the rows up, or call "
                "accumulate(sl.retracting)"
            )


def _replayed(write: Write) -> Iterator[str]:
    """Warn about rows that a repeated batch may make anew from a table that has changed meanwhile."""
    lookups = [node.operation for node in walk(write) if isinstance(node, Stateless)]
    for join in (each for each in lookups if isinstance(each, LookupJoin) and not each.pin):
        yield (
            f"a batch that is repeated after a crash reads {join.table.name} again, and may get newer rows than the "
            "crashed one has sent to other steps or sinks: enrich(…, pin=True) repeats the answers"
        )


def _of_several(write: Write) -> Iterator[str]:
    """Warn about an upsert sink of several streams, whose rows may have the same key."""
    origins = {path.origin for path in paths_to(write.of)}
    if any(upserted(write)) and len(origins) > 1:
        names = ", ".join(each.source.name if isinstance(each, Read) else each.name for each in origins)
        yield (
            f"rows of several streams ({names}) with one key overwrite and delete each other in {write.sink.name}: "
            "add a column that tells them apart to the key"
        )


def _overwritten(each: Upserted) -> Iterator[str]:
    """Warn about rows under one key of an upsert sink that are not results of one key and window."""
    sink, origin, rows, plan = each.write.sink.name, each.origin.name, each.rows, each.origin.plan
    if each.missing_keys:
        yield (
            f"rows of {origin} with different {', '.join(each.missing_keys)} overwrite each other in {sink}: its key "
            f"is {', '.join(each.key)}"
        )
    if plan.forgets is not None:
        yield (f"{origin} forgets a key {plan.forgets}: if the key returns, its new row replaces the old one in {sink}")
    if len(each.window_columns) == 1 and not plan.has_windows_of_one_size:
        (only,) = each.window_columns
        yield f"the key of {sink} has only {only}: windows of {origin} that share it replace each other"
    if rows.pane_filters:
        yield (
            f"where {rows.pane_filters[0]} chooses panes of {origin}: a row stays in {sink} although a later pane "
            "replaces or retracts it"
        )
    if plan.refinement is Refinement.REPLACEMENTS:
        yield from _stale(each)
    deletes = bool(rows.value_filters) or rows.is_multiplied
    if plan.refinement is Refinement.CHANGELOG and each.has_windows and not each.window_columns and deletes:
        yield (
            f"if the latest window of a key loses its row, {sink} has no row for the key, although an earlier window "
            "has one: add the window to the key"
        )
    if rows.is_computed and plan.refinement is not Refinement.SINGLE:
        yield (
            f"a function makes the rows of {sink}: each must depend on its pane only, or a correction does not find "
            "the row that it replaces"
        )


def _stale(each: Upserted) -> Iterator[str]:
    """Warn about rows of accumulating panes that no later pane replaces."""
    sink, origin, rows = each.write.sink.name, each.origin.name, each.rows
    reasons = [f"where {condition} drops it" for condition in rows.value_filters]
    reasons += ["flat_map makes fewer rows of it"] if rows.is_multiplied else []
    reasons += [f"it has another {column}" for column in each.changing_columns]
    if reasons:
        yield (
            f"a row of {origin} stays in {sink} although a later pane replaces it, if {reasons[0]}: call "
            "accumulate(sl.retracting)"
        )
