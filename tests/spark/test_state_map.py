"""What a key group holds: asked of Spark place by place, and not asked again while a worker remembers it."""

from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from strandline.kernel.state.slice_store import INDEX, Index, write_index
from strandline.spark.tasks import block_cache
from strandline.spark.tasks.block_cache import BlockCache
from strandline.spark.tasks.state_map import Held
from tests.spark.by_hand import MapState

BASE, MORE = b"a block", b"another one"
HERE = 3


class Asked(MapState):
    """A map state that remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def getValue(self, key: tuple[str]) -> tuple[bytes] | None:  # noqa: N802 - Spark's name
        self.reads.append(key[0])
        return super().getValue(key)


def indexed(blocks: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    return {**blocks, INDEX: write_index(Index(), blocks)}


@pytest.fixture
def state() -> Asked:
    """Two blocks and their index, written by somebody else."""
    found = Asked()
    found.held = {place: data for place, data in indexed({"slice:0": BASE, "slice:1": MORE}).items() if data}
    return found


def test_state_is_read_place_by_place(state: Asked) -> None:
    held = Held(state, HERE, BlockCache())
    assert held["slice:0"] == BASE
    assert held.get("slice:7") is None
    assert sorted(held) == [INDEX, "slice:0", "slice:1"]
    assert len(held) == 3
    assert state.reads == ["slice:0", "slice:7"]


def test_what_was_read_once_is_not_asked_for_again(state: Asked) -> None:
    lately = BlockCache()
    for _ in range(3):
        held = Held(state, HERE, lately)
        assert [held[place] for place in (INDEX, "slice:0")] == [state.held[INDEX], BASE]
    assert state.reads == [INDEX, "slice:0", INDEX, INDEX]
    assert lately.size == len(BASE)


def test_what_was_written_is_not_asked_for_either(state: Asked) -> None:
    lately = BlockCache()
    Held(state, HERE, lately).write(indexed({"slice:0": MORE, "slice:1": None}))
    assert set(state.held) == {INDEX, "slice:0"}
    held = Held(state, HERE, lately)
    assert (held[INDEX], held["slice:0"]) == (state.held[INDEX], MORE)
    assert state.reads == [INDEX]


def test_what_another_worker_wrote_since_is_asked_for(state: Asked) -> None:
    mine, theirs = BlockCache(), BlockCache()
    held = Held(state, HERE, mine)
    assert (held[INDEX], held["slice:0"]) == (state.held[INDEX], BASE)
    Held(state, HERE, theirs).write(indexed({"slice:0": MORE}))
    held = Held(state, HERE, mine)
    assert (held[INDEX], held["slice:0"]) == (state.held[INDEX], MORE)
    assert state.reads == [INDEX, "slice:0", INDEX, "slice:0"]


def test_what_a_batch_wrote_that_came_to_nothing_does_not_count(state: Asked) -> None:
    lately, before = BlockCache(), dict(state.held)
    Held(state, HERE, lately).write(indexed({"slice:0": MORE}))
    state.held = before  # the task failed, and Spark went back
    held = Held(state, HERE, lately)
    assert (held[INDEX], held["slice:0"]) == (before[INDEX], BASE)


def test_key_groups_and_places_are_told_apart_and_so_is_an_index_without_digests(state: Asked) -> None:
    lately = BlockCache()
    for to in (HERE, HERE + 1):
        held = Held(state, to, lately)
        assert (held[INDEX], held["slice:0"]) == (state.held[INDEX], BASE)
    assert state.reads == [INDEX, "slice:0"] * 2
    state.held[INDEX] = write_index(Index())
    held = Held(state, HERE, lately)
    assert (held[INDEX], held["slice:0"]) == (state.held[INDEX], BASE)
    assert state.reads[-1] == "slice:0"


def test_what_is_no_more_is_forgotten_whoever_removed_it(state: Asked) -> None:
    mine = BlockCache()
    held = Held(state, HERE, mine)
    assert [held[place] for place in (INDEX, "slice:0", "slice:1")][1:] == [BASE, MORE]
    assert mine.size == len(BASE + MORE)
    Held(state, HERE, BlockCache()).write(indexed({"slice:0": BASE, "slice:1": None}))
    assert Held(state, HERE, mine)[INDEX] == state.held[INDEX]
    assert mine.size == len(BASE)


def test_no_more_is_remembered_than_there_is_room_for() -> None:
    lately = BlockCache(most=10)
    lately.keep(0, "a", "1", b"123456")
    lately.keep(0, "b", "2", b"12345")
    assert lately.size == 6
    assert lately.get(0, "a", "1") == b"123456"
    assert lately.get(0, "b", "2") is None
    lately.keep(0, "a", "3", b"123")
    lately.keep(0, "b", "2", b"12345")
    assert lately.size == 8
    assert lately.get(0, "a", "1") is None
    lately.forget(0, "a")
    lately.forget(0, "nothing")
    lately.forget(7, "nothing")
    assert lately.size == 5


def test_a_key_group_that_is_not_played_any_more_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(block_cache, "time", SimpleNamespace(monotonic=lambda: now))
    lately = BlockCache(most=10)
    for to in (0, 1):
        lately.begin(to, {"a": "1"})
        lately.keep(to, "a", "1", b"1234")
    now += block_cache.GONE_AFTER_SECONDS + 1
    lately.begin(1, {"a": "1"})
    lately.keep(2, "a", "1", b"12345")
    assert [lately.get(to, "a", "1") for to in (0, 1, 2)] == [None, b"1234", b"12345"]
    assert lately.size == 9
