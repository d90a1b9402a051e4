"""Real processes, killed for real at every point and at any moment: what each delivery loses and repeats, or not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proof.forked import SCHEDULE, Survived, asleep, at_random, killed, out_of_room, restored, spec
from proof.late_ends import late_ends
from proof.stores import KafkaStore, PostgresStore
from proof.torn import Fate, torn
from proof.zygote import Zygote
from strandline.plan.endpoints import Delivery
from strandline.services.service import Service

pytestmark = pytest.mark.slow

SEED = 7


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote(tmp_path_factory.mktemp("zygote") / "log") as mine:
        yield mine


def shows(survived: Survived, kills: int) -> None:
    """Nothing wrong, and at most once was seen losing, at least once repeating, by the same kills."""
    assert survived.faults == ()
    assert survived.kills == kills
    found = {each: (verdict.lost > 0, verdict.repeated > 0) for each, verdict in survived.verdicts.items()}
    assert found == {
        Delivery.AT_MOST_ONCE: (True, False),
        Delivery.AT_LEAST_ONCE: (False, True),
        Delivery.EXACTLY_ONCE: (False, False),
    }


@pytest.mark.parametrize("kind", ["sqlite", "folder", "delta"])
def test_a_job_that_is_killed_fifteen_times_keeps_the_word_of_each_delivery(
    kind: str, zygote: Zygote, tmp_path: Path
) -> None:
    shows(killed(zygote, spec(kind, tmp_path / "sink"), tmp_path, SCHEDULE), len(SCHEDULE))


def test_so_it_does_with_duckdb(zygote: Zygote, tmp_path: Path) -> None:
    shows(killed(zygote, spec("duckdb", tmp_path / "sink"), tmp_path, ["marked:1", "C9:2", "C10:3"]), 3)


@pytest.mark.services
def test_so_it_does_with_a_database_that_is_served(zygote: Zygote, postgres: Service, tmp_path: Path) -> None:
    PostgresStore(postgres.address, "kills").make()
    store = {"kind": "postgres", "dsn": postgres.address, "schema": "kills"}
    shows(killed(zygote, store, tmp_path, SCHEDULE), len(SCHEDULE))


@pytest.mark.services
def test_so_it_does_with_topics(zygote: Zygote, kafka: Service, tmp_path: Path) -> None:
    KafkaStore(kafka.address, "kills").make(*Delivery)
    store = {"kind": "kafka", "servers": kafka.address, "prefix": "kills"}
    shows(killed(zygote, store, tmp_path, ["marked:1", "C9:2", "C10:3"]), 3)


def test_killed_at_any_moment_nothing_is_wrong_either(zygote: Zygote, tmp_path: Path) -> None:
    survived = killed(zygote, spec("sqlite", tmp_path / "sink"), tmp_path, at_random(SEED, 12))
    assert survived.faults == ()


@pytest.mark.parametrize("kind", ["sqlite", "folder", "delta"])
def test_a_driver_that_slept_while_another_took_over_is_fenced(kind: str, zygote: Zygote, tmp_path: Path) -> None:
    assert asleep(zygote, spec(kind, tmp_path / "sink"), tmp_path, 3).faults == ()


@pytest.mark.parametrize("kind", ["sqlite", "delta"])
def test_a_job_that_is_started_from_an_old_copy_of_its_folder_is_refused_and_from_its_own_it_goes_on(
    kind: str, zygote: Zygote, tmp_path: Path
) -> None:
    told = restored(zygote, spec(kind, tmp_path / "sink"), tmp_path, 2)
    assert (told.faults, told.kills) == ((), 2)


@pytest.mark.parametrize(("kind", "limits"), [("sqlite", (40_000, 80_000, 100_000)), ("folder", (300, 1_000, 1_500))])
def test_a_disk_that_is_full_loses_nothing_once_there_is_room_again(
    kind: str, limits: tuple[int, ...], zygote: Zygote, tmp_path: Path
) -> None:
    assert out_of_room(zygote, spec(kind, tmp_path / "sink"), tmp_path, limits).faults == ()


@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_a_checkpoint_that_a_kill_left_torn_is_mended_and_nothing_is_wrong(
    kind: str, zygote: Zygote, tmp_path: Path
) -> None:
    told = torn(zygote, spec(kind, tmp_path / "sink"), tmp_path, SEED, 8)
    assert told.faults == []
    assert told.kills == told.fates.total() == 8
    assert told.fates[Fate.MENDED] > 0
    assert told.fates[Fate.SAID] <= 1


@pytest.mark.services
def test_a_commit_that_a_database_hears_of_late_counts_once(zygote: Zygote, postgres: Service, tmp_path: Path) -> None:
    PostgresStore(postgres.address, "late").make()
    store = {"kind": "postgres", "dsn": postgres.address, "schema": "late"}
    told = late_ends(zygote, postgres, store, tmp_path, 3)
    assert (told.faults, told.kills, told.looks) == ((), 3, 3)


@pytest.mark.services
def test_a_commit_that_a_broker_hears_of_late_ends_no_later_transaction(
    zygote: Zygote, kafka: Service, tmp_path: Path
) -> None:
    KafkaStore(kafka.address, "late").make(*Delivery)
    store = {"kind": "kafka", "servers": kafka.address, "prefix": "late"}
    told = late_ends(zygote, kafka, store, tmp_path, 2)
    assert (told.faults, told.kills, told.looks) == ((), 2, 2)
