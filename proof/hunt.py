"""Run the enumerated crashes with an injected bug until one reveals it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proof.bugs import Bug
from proof.states import State, crashes, encounters
from proof.stores import Store
from strandline.plan.endpoints import Delivery

ORDER: Final = (Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE)


@dataclass(frozen=True, slots=True)
class Caught:
    """After how many states a bug was found, and by which."""

    after: int
    state: str
    fault: str


def states(kind: str) -> list[State]:
    """Return the hunt's order: states around the commit first, exactly once before the others."""
    found = [*crashes((1,), cuts=[False]), *crashes((1,), cuts=[True]), *encounters(kind)]

    def order(state: State) -> tuple[bool, int]:
        calm = any(f" {point} batch" in state.name for point in ("C6", "C11", "C12")) or state.name.endswith(
            "C7 batch 1"
        )
        return calm, ORDER.index(state.delivery)

    return sorted(found, key=order)


def hunt(bug: Bug, folder: Path, make: Callable[[Path], Store]) -> Caught | None:
    """Return the first state that reveals the bug; None if there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, state in enumerate(states(bug.store), 1):
        home = folder / str(number)
        (home / "sink").mkdir(parents=True)
        with bug.made():
            outcome = state.play(home, make(home / "sink"))
        if outcome.faults:
            return Caught(number, outcome.name, outcome.faults[0])
    return None
