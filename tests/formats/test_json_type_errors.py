"""JSON records with values of wrong types: the errors are the parser's, without a run of the parser for each record."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import json as arrow_json

import strandline as sl
from strandline.formats.json import parse_objects
from strandline.kernel.blocks.block import OFFSET
from strandline.ports.codecs import DETAIL, Decoded
from tests.formats.batches import raw

SCORES = sl.json("team string, score long, at timestamp")
WIDE = sl.json(
    "text string, whole long, narrow int, real double, truth boolean, cost decimal(9, 2), all array<long>,"
    "inner struct<x: double, y: array<struct<z: string, whole: long>>>"
)
GOOD: dict[str, Any] = {
    "text": "a", "whole": 5, "narrow": 7, "real": 1.5, "truth": True, "cost": 2.25, "all": [1, 2],
    "inner": {"x": 1, "y": [{"z": "a", "whole": 1}]},
}  # fmt: skip
COLUMN = "JSON parse error: Column(/score) changed from number to {} in row 0"
ERRORS = {
    '"many"': COLUMN.format("string"),
    "true": COLUMN.format("boolean"),
    "[1]": COLUMN.format("array"),
    '{"a": 1}': COLUMN.format("object"),
    "1.5": "Failed to convert JSON to int64, couldn't parse:1.5",
    "1.50": "Failed to convert JSON to int64, couldn't parse:1.50",
    "-2.0": "Failed to convert JSON to int64, couldn't parse:-2.0",
}


@pytest.mark.parametrize("share", [100, 1])
def test_the_parser_runs_once_a_kind_of_error_however_many_records_have_it(
    monkeypatch: pytest.MonkeyPatch, share: int
) -> None:
    runs = list[None]()

    def counted(*given: Any) -> Any:
        runs.append(None)
        return arrow_json.read_json(*given)

    class Counted:
        ReadOptions, ParseOptions, read_json = arrow_json.ReadOptions, arrow_json.ParseOptions, staticmethod(counted)

    monkeypatch.setattr(parse_objects, "arrow_json", Counted)
    values, bad = list(ERRORS), 0
    records = list[bytes | None]()
    for number in range(20_000):
        wrong = number % share == 0
        records.append(b'{"team": "red", "score": %s}' % (values[bad % len(values)] if wrong else "1").encode())
        bad += wrong
    decoded = SCORES.decode(raw(records))
    assert decoded.rows.height == 20_000 - bad
    assert decoded.dead[DETAIL].to_list() == [ERRORS[values[number % len(values)]] for number in range(bad)]
    assert len(runs) <= len(values) + 3


leaves = st.sampled_from(
    [None, True, 0, -5, 10**9, 2**31, 10**18, 2**63, 10**30, 1.5, 2.25, 1.505, 1e300, float("nan"), "", "x", "1.5",
     '"whole": "x"', "\ud800", "\\", "}"]
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "z", "whole"]), inner),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A record with some values replaced, fields repeated, or bytes changed."""
    pairs = [(name, GOOD[name]) for name in draw(st.permutations(sorted(GOOD)))]
    for name, value in draw(st.lists(st.tuples(st.sampled_from([*GOOD, "else"]), values), max_size=2)):
        repeated = draw(st.integers(0, 9)) == 0
        pairs = [*pairs, (name, value)] if repeated else [(n, value if n == name else v) for n, v in pairs]
    fields = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in pairs]
    text = ("{" + ", ".join(fields) + "}").encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)):
        return text
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.sampled_from([b"", b",", b"}", b'"', b"0", b".", b"e", b"\xff", b"-"])) + text[at + 1 :]


@given(st.lists(mutated(), min_size=2, max_size=12))
def test_records_have_the_same_rows_and_errors_alone_and_in_a_batch(found: list[bytes]) -> None:
    together = WIDE.decode(raw(found))
    alone = [WIDE.decode(raw([record])) for record in found]
    assert together.dead[DETAIL].to_list() == [detail for each in alone for detail in each.dead[DETAIL]]
    rows = [repr(row) for each in alone for row in each.rows.select(WIDE.columns).rows()]
    assert [repr(row) for row in together.rows.select(WIDE.columns).rows()] == rows


def test_records_of_more_shapes_than_are_learned_are_dead_letters_too() -> None:
    found = [b'{"all": [%s], "score": "x"}' % b", ".join([b"1", b"null"] * number) for number in range(300)]
    decoded = sl.json("all array<long>, score long").decode(raw([*found, b'{"score": 1}']))
    assert decoded.rows[OFFSET].to_list() == [400]
    assert set(decoded.dead[DETAIL]) == {COLUMN.format("string")}


def test_a_text_that_is_no_time_does_not_change_how_its_neighbours_are_read() -> None:
    texts = ["x", "2024-05-01", None, "2024-05-01 12:00:00", "2024-05-01T12:00:00Z", "y", "2024-05-01T12:00Z"]
    decoded: Decoded = SCORES.decode(raw([json.dumps({"at": text}).encode() for text in texts]))
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert decoded.rows["at"].to_list() == [None, noon.replace(hour=0), None, noon, noon, None, noon]
