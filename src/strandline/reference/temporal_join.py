"""Join the rows of one key with the versions of that key: the oracle of the temporal join."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.model.elements import END, Element, Timestamp
from strandline.model.joins import LEFT, RIGHT, How
from strandline.model.panes import Late, LateReason, Row
from strandline.model.temporal_join import Direction, TemporalJoin
from strandline.reference.expressions import evaluate


@dataclass(frozen=True, slots=True)
class Version:
    """A right row, or a deletion, which has no row."""

    element: Element
    deleted: bool = False

    @property
    def at(self) -> Timestamp:
        return self.element.at


@dataclass(frozen=True, slots=True)
class TemporalState:
    """The versions of one key by time, and the left rows that wait or may be corrected."""

    versions: tuple[Version, ...] = ()
    probes: tuple[Element, ...] = ()
    hold: Timestamp | None = None
    """The earliest time of a left row that is not yet emitted."""

    @property
    def is_empty(self) -> bool:
        return not self.versions and not self.probes


@dataclass(slots=True)
class TemporalJoined:
    """What a batch of one key emits, and what became of its rows."""

    state: TemporalState
    rows: list[Row] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    contributed: int = 0
    filtered: int = 0


def temporal_join(
    ask: TemporalJoin,
    key: Any,
    state: TemporalState,
    elements: Sequence[Element],
    before: Timestamp,
    after: Timestamp,
    roles: Mapping[str, str],
) -> TemporalJoined:
    """Play one batch of one key while the watermark moves from `before` to `after`. `roles` has the side of inputs."""
    done = TemporalJoined(state)
    given = sorted(elements, key=_position)
    probes = [*_probes(ask, key, [each for each in given if roles[each.input] == LEFT], before, done)]
    versions = _versions(ask, key, [each for each in given if roles[each.input] == RIGHT], before, done)
    for probe in state.probes:
        if probe.at + ask.delay <= before:
            _correct(ask, key, probe, _as_of(ask, state.versions, probe.at), _as_of(ask, versions, probe.at), done)
    waiting = [*(each for each in state.probes if each.at + ask.delay > before), *probes]
    for probe in waiting:
        if probe.at + ask.delay <= after:
            _emit(ask, key, probe, _as_of(ask, versions, probe.at), done)
    kept = tuple(each for each in (*state.probes, *probes) if each.at + ask.delay + ask.corrections > after)
    hold = min((each.at for each in kept if each.at + ask.delay > after), default=None)
    done.state = TemporalState(_living(ask, versions, after), kept, hold)
    return done


def _position(element: Element) -> tuple[Timestamp, str, str, int]:
    return (element.at, element.input, element.partition, element.offset)


def _is_null(key: Any) -> bool:
    return key is None or (isinstance(key, tuple) and None in key)


def _probes(
    ask: TemporalJoin, key: Any, given: Sequence[Element], before: Timestamp, done: TemporalJoined
) -> Sequence[Element]:
    """Return the left rows that wait for their version. A row with a null key has none and does not wait."""
    timely = []
    for element in given:
        if element.at <= before:
            done.late.append(Late(element, LateReason.BEHIND, None, before))
        elif not _is_null(key):
            done.contributed += 1
            timely.append(element)
        elif ask.how is How.LEFT:
            done.contributed += 1
            _emit(ask, key, element, None, done)
        else:
            done.filtered += 1
    return timely


def _versions(
    ask: TemporalJoin, key: Any, given: Sequence[Element], before: Timestamp, done: TemporalJoined
) -> tuple[Version, ...]:
    """Return all versions in order of time. Of one time the last in source order counts."""
    arrived = [each for each in given if not (each.retraction and ask.ignores_retractions)]
    done.filtered += len(given) - len(arrived)
    if _is_null(key):
        done.filtered += len(arrived)
        return ()
    times = sorted({*(each.at for each in done.state.versions), *(each.at for each in arrived)})
    found = {each.at: each for each in done.state.versions}
    for element in arrived:
        if _has_ended(ask, element.at, _next(times, element.at), before):
            done.late.append(Late(element, LateReason.EXPIRED, None, before))
        else:
            done.contributed += 1
            found[element.at] = Version(element, _is_deletion(ask, element))
    return tuple(found[at] for at in sorted(found))


def _is_deletion(ask: TemporalJoin, element: Element) -> bool:
    if element.retraction:
        return True
    return ask.deleted is not None and evaluate(ask.deleted, {"": element.columns}) is True


def _next(times: Sequence[Timestamp], at: Timestamp) -> Timestamp:
    return next((each for each in times if each > at), END)


def _has_ended(ask: TemporalJoin, at: Timestamp, following: Timestamp, watermark: Timestamp) -> bool:
    """Tell whether no left row that can still be emitted or corrected has this version."""
    reached = ask.reach is not None and watermark >= at + ask.reach + ask.corrections
    replaced = ask.direction is Direction.BACKWARD and watermark >= following + ask.corrections
    return reached or replaced


def _living(ask: TemporalJoin, versions: Sequence[Version], watermark: Timestamp) -> tuple[Version, ...]:
    times = [each.at for each in versions]
    return tuple(each for each in versions if not _has_ended(ask, each.at, _next(times, each.at), watermark))


def _as_of(ask: TemporalJoin, versions: Sequence[Version], at: Timestamp) -> Version | None:
    """Return the version of a left row with this time."""
    near = [each for each in versions if ask.tolerance is None or at - ask.tolerance <= each.at <= at + ask.tolerance]
    in_order = sorted(near, key=lambda each: each.at)
    earlier = next((each for each in reversed(in_order) if each.at <= at), None)
    later = next((each for each in in_order if each.at >= at), None)
    match ask.direction:
        case Direction.BACKWARD:
            return earlier
        case Direction.FORWARD:
            return later
        case Direction.NEAREST:
            if earlier is None or later is None:
                return earlier or later
            return earlier if at.since(earlier.at) < later.at.since(at) else later


def _correct(
    ask: TemporalJoin, key: Any, probe: Element, was: Version | None, now: Version | None, done: TemporalJoined
) -> None:
    """Retract an emitted row whose version is another one now, and emit it again."""
    if was is now:
        return
    _emit(ask, key, probe, was, done, retraction=True)
    _emit(ask, key, probe, now, done)


def _emit(
    ask: TemporalJoin,
    key: Any,
    probe: Element,
    version: Version | None,
    done: TemporalJoined,
    *,
    retraction: bool = False,
) -> None:
    is_missing = version is None or version.deleted
    if is_missing and ask.how is How.INNER:
        return
    values = dict(probe.columns)
    if version is not None and not version.deleted:
        names = dict(ask.renamed)
        values |= {names.get(name, name): value for name, value in version.element.columns.items()}
    done.rows.append(Row(key, probe.at, values, retraction))
