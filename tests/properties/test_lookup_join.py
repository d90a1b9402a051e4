"""Generated batches and tables: the kernel enriches rows as the oracle does, and no row is lost."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from strandline.execution.story_player import KernelPlayer
from strandline.model.elements import Element, Timestamp
from strandline.plan.stories.reference_graph import graph_of
from strandline.plan.stories.story import to_story
from strandline.reference.graph_player import GraphPlayer

KEYS = st.sampled_from(["a", "b", "c", None])
NUMBERS = st.sampled_from([1, 2, None])
ROWS = st.lists(
    st.fixed_dictionaries({"key": KEYS, "n": NUMBERS, "city": st.sampled_from(["Rome", "Oslo", None])}), max_size=5
)
TABLES = st.one_of(ROWS, st.none())
BATCHES = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 20), KEYS, NUMBERS), max_size=6), TABLES), min_size=1, max_size=4
)


def pipeline(on: Any, missing: str) -> Any:
    lookup = {
        "table": "cities", "columns": "key string, n long, city string", "on": on, "missing": missing,
        "on_failure": "dead_letter", "rename": {"n": "n_right", "key": "key_right"},
    }  # fmt: skip
    return to_story({"story": "generated", "pipeline": {"enrich": lookup}, "steps": []}).pipeline


def shown(emitted: Any) -> list[str]:
    rows = [(each.at.ms, each.key, {name: value for name, value in each.values.items() if value is not None})
            for each in emitted.rows]  # fmt: skip
    dead = [(each.reason, {name: value for name, value in each.columns.items() if value is not None or name == "key"})
            for each in emitted.dead]  # fmt: skip
    return sorted(map(repr, [*rows, *dead]))


@given(BATCHES, st.sampled_from(["key", "n", ["key", "n"], {"n": "n"}]), st.sampled_from(["pad", "drop"]))
def test_kernel_and_oracle_enrich_alike_and_count_every_row(batches: Any, on: Any, missing: str) -> None:
    story = pipeline(on, missing)
    kernel, oracle = KernelPlayer(story), GraphPlayer(graph_of(story))
    offset = 0
    for elements, table in batches:
        for player in (kernel, oracle):
            player.set_tables({"cities": table})
        fed = []
        for at, key, number in elements:
            fed.append(Element(Timestamp(at), key, {"n": number}, "", offset))
            offset += 1
        assert shown(kernel.feed(fed)) == shown(oracle.feed(fed))
    (counted,) = kernel.counts.values() or (oracle.counts["out:0"],)
    expected = oracle.counts["out:0"]
    assert (counted.read, counted.contributed, counted.filtered, counted.dead, counted.unmatched) == (
        expected.read, expected.contributed, expected.filtered, expected.dead, expected.unmatched,
    )  # fmt: skip
    assert counted.read == offset
    assert counted.missing == expected.missing == 0
