"""Every crash of a delivery that can be told apart, without Spark: the state it leaves, the restart, what is found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from proof.forked import spec
from proof.states import POINTS, State, asked_twice, crashed, crashes, encounters
from proof.stores import EMBEDDED, KafkaStore, PostgresStore, Store, store_of
from strandline.plan.endpoints import Delivery
from strandline.services.service import Service

pytestmark = pytest.mark.slow

MakeStore = Callable[[Path], Store]

LEAST = 200
TIMES = {
    Delivery.EXACTLY_ONCE: (0, 0),
    Delivery.AT_LEAST_ONCE: (0, 1),
    Delivery.AT_MOST_ONCE: (1, 0),
}
"""Of each delivery, whether it must be seen losing, and whether it must be seen repeating."""


def states_of(kind: str) -> list[State]:
    """All of them in SQLite and in folders; elsewhere, where each takes longer, those that differ there."""
    once = Delivery.EXACTLY_ONCE
    match kind:
        case "sqlite" | "folder":
            return [*crashes((1,)), *encounters(kind)]
        case "delta":
            more = [*crashes((1,), cuts=[True]), *encounters(kind)]
            return [*crashes((1,), cuts=[False]), *(state for state in more if state.delivery is once)]
        case "duckdb":
            return [state for state in crashes((1,), cuts=[False]) if state.delivery is once]
        case "postgres":
            return [*crashes((1,), cuts=[False]), *encounters(kind)]
    points = {"exactly_once": ("C9", "C10"), "at_least_once": ("C10",), "at_most_once": ("marked",)}
    killed = [crashed(Delivery(delivery), point, 1) for delivery, some in points.items() for point in some]
    return [*killed, asked_twice()]


def play(states: list[State], folder: Path, make: MakeStore) -> None:
    """All of them, each in places of its own; and each delivery has shown what it permits."""
    faults: dict[str, tuple[str, ...]] = {}
    shown = {delivery: [0, 0] for delivery in Delivery}
    for number, state in enumerate(states):
        home = folder / str(number)
        (home / "sink").mkdir(parents=True)
        outcome = state.play(home, make(home / "sink"))
        if outcome.faults:
            faults[outcome.name] = outcome.faults
        if not state.name.endswith(("old sink", "old checkpoint")):
            seen = shown[state.delivery]
            seen[0], seen[1] = seen[0] + outcome.lost, seen[1] + outcome.repeated
    assert faults == {}
    asked = {state.delivery for state in states}
    assert {each: (bool(shown[each][0]), bool(shown[each][1])) for each in asked} == {
        each: TIMES[each] for each in asked
    }


@pytest.mark.parametrize("kind", EMBEDDED)
def test_after_every_crash_each_delivery_keeps_its_word(kind: str, tmp_path: Path) -> None:
    play(states_of(kind), tmp_path, lambda folder: store_of(spec(kind, folder)))


@pytest.mark.services
def test_so_it_does_in_a_database_that_is_served(postgres: Service, tmp_path: Path) -> None:
    numbers = iter(range(1_000))
    play(states_of("postgres"), tmp_path, lambda _: PostgresStore(postgres.address, f"states {next(numbers)}").make())


@pytest.mark.services
def test_so_it_does_in_topics(kafka: Service, tmp_path: Path) -> None:
    numbers = iter(range(1_000))
    make = lambda _: KafkaStore(kafka.address, f"states-{next(numbers)}").make("answers")  # noqa: E731
    play(states_of("kafka"), tmp_path, make)


def test_there_are_enough_of_them_and_every_point_is_among_them() -> None:
    kinds = [*EMBEDDED, "postgres", "kafka"]
    assert sum(len(states_of(kind)) for kind in kinds) >= LEAST
    for kind in kinds:
        names = [state.name for state in states_of(kind)]
        assert len(names) == len({*names})
        for point in POINTS[Delivery.EXACTLY_ONCE] if kind != "kafka" else ("C9", "C10"):
            assert any(name.startswith(f"{Delivery.EXACTLY_ONCE} {point} ") for name in names)
