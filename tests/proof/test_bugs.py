"""Mistakes made on purpose: the enumerated crashes find every one, or they would prove nothing."""

from pathlib import Path

import pytest

from proof.bugs import BUGS
from proof.forked import spec
from proof.hunt import hunt
from proof.stores import EMBEDDED, KafkaStore, store_of
from strandline.services.service import Service

LEAST = 25


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, bug in BUGS.items() if bug.store in EMBEDDED])
def test_a_mistake_is_found(name: str, tmp_path: Path) -> None:
    bug = BUGS[name]
    caught = hunt(bug, tmp_path, lambda folder: store_of(spec(bug.store, folder)))
    assert caught is not None, bug.says


@pytest.mark.services
def test_mistakes_of_the_sink_for_topics_are_found(kafka: Service, tmp_path: Path) -> None:
    numbers = iter(range(1_000))
    for bug in BUGS.values():
        if bug.store == "kafka":
            make = lambda _: KafkaStore(kafka.address, f"bugs-{next(numbers)}").make("answers", "others")  # noqa: E731
            assert hunt(bug, tmp_path / bug.name, make) is not None, bug.says


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= LEAST
    assert all(bug.says for bug in BUGS.values())
