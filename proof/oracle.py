"""Check what a reader sees under each delivery against the source's log. Shares no code with the library."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from proof.events import part_of
from proof.stores import Asked, Row
from strandline.plan.endpoints import Delivery

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a table check: lost events, repeated events, and violations."""

    events: int
    lost: int
    repeated: int
    faults: tuple[str, ...]


Where = Callable[[int], str]
"""Output that an event belongs to."""


def judged(
    asked: Asked, events: Iterable[int], batches: Mapping[int, list[int]] | None, where: Where = part_of
) -> Verdict:
    """Check a final table against all source events and, if known, their batches."""
    rows, wanted = asked.rows(), set(events)
    found = Counter(event for _, _, event in rows)
    lost = sorted(wanted - found.keys())
    repeated = sorted(event for event, times in found.items() if times > 1)
    faults = misplaced(rows, wanted, where)
    if batches is not None:
        faults += torn(rows, batches, whole=asked.store.whole)
    if lost and asked.delivery is not Delivery.AT_MOST_ONCE:
        faults.append(f"lost write: {_shown(lost)}")
    if repeated and asked.delivery is not Delivery.AT_LEAST_ONCE:
        faults.append(f"duplicate: {_shown(repeated)}")
    return Verdict(len(wanted), len(lost), len(repeated), tuple(faults))


def misplaced(rows: Iterable[Row], wanted: set[int], where: Where) -> list[str]:
    """Return unknown events and events in the wrong output."""
    unknown = sorted({event for _, _, event in rows} - wanted)
    wrong = sorted({event for part, _, event in rows if event in wanted and part != where(event)})
    return [
        *([f"phantom: {_shown(unknown)}"] if unknown else []),
        *([f"in the wrong table: {_shown(wrong)}"] if wrong else []),
    ]


def torn(rows: Iterable[Row], batches: Mapping[int, list[int]], *, whole: bool) -> list[str]:
    """Return torn batches: all events of a batch must be present equally often.

    If the parts of a batch are separate transactions, this holds for each part.
    """
    found = Counter((batch, event) for _, batch, event in rows)
    faults = []
    for batch in sorted({batch for _, batch, _ in rows}):
        by_part: dict[str, set[int]] = {}
        for event in batches.get(batch, []):
            by_part.setdefault("" if whole else part_of(event), set()).add(found[batch, event])
        faults += [f"half a batch: batch {batch} {part}".rstrip() for part, times in by_part.items() if len(times) > 1]
        strange = sorted({event for number, event in found if number == batch} - set(batches.get(batch, [])))
        if strange:
            faults.append(f"inconsistent offsets: batch {batch} holds {_shown(strange)} of another")
    return faults


class Reader:
    """Reader of a table during writes: it must see whole batches, and none that disappears."""

    def __init__(self, asked: Asked, batches: Callable[[], Mapping[int, list[int]]]) -> None:
        self._asked, self._batches = asked, batches
        self._seen: Counter[Row] = Counter()
        self.looks = 0

    def look(self) -> list[str]:
        rows = self._asked.rows()
        found = Counter(rows)
        self.looks += 1
        faults = torn(rows, self._batches(), whole=self._asked.store.whole)
        gone = sorted(event for _, _, event in self._seen - found)
        if gone:
            faults.append(f"non-monotonic read: {_shown(gone)}")
        again = sorted(event for (_, _, event), times in found.items() if times > 1)
        if again and self._asked.delivery is not Delivery.AT_LEAST_ONCE:
            faults.append(f"duplicate: {_shown(again)}")
        self._seen = found
        return faults


def _shown(events: list[int]) -> str:
    more = f" and {len(events) - _SHOWN} more" if len(events) > _SHOWN else ""
    return ", ".join(map(str, events[:_SHOWN])) + more
