"""Infer columns from a sample."""

from pathlib import Path

import pytest

import strandline as sl
from strandline.errors import InvalidSchema
from tests.formats.batches import raw

SAMPLE = b"""{"team": "red", "score": 5, "at": "2024-05-01T12:00:00Z", "day": "2024-05-01", "won": true, "tags": []}
{"team": "blue", "score": 1.5, "at": "2024-05-01 12:00:00", "tags": ["a", null], "in": {"x": 1}, "none": null}

{"team": null, "big": 9223372036854775808, "in": {"y": "2024-05-01", "x": null}}
"""
DDL = (
    "team string, score double, at timestamp, day date, won boolean, tags array<string>, "
    "in struct<x: long, y: date>, none string, big double"
)


def test_a_sample_gives_ddl_to_pin(tmp_path: Path) -> None:
    (tmp_path / "sample.jsonl").write_bytes(SAMPLE)
    for sample in (SAMPLE, SAMPLE.strip().split(b"\n\n"), tmp_path / "sample.jsonl", str(tmp_path / "sample.jsonl")):
        lines = SAMPLE.split(b"\n") if isinstance(sample, list) else sample
        assert sl.infer_json([line for line in lines if line] if isinstance(lines, list) else lines) == DDL


def test_the_inferred_ddl_decodes_the_sample() -> None:
    records = [b'{"team": "red", "n": 1}', b'{"team": "blue", "at": "2024-05-01T12:00:00Z"}']
    decoded = sl.json(sl.infer_json(records)).decode(raw(records))
    assert decoded.dead.is_empty()
    assert decoded.rows["n"].to_list() == [1, None]


def test_dates_among_timestamps_become_timestamps_and_a_word_makes_them_strings() -> None:
    day, time, word = b'{"x": "2024-05-01"}', b'{"x": "2024-05-01T12:00:00Z"}', b'{"x": "noon"}'
    assert sl.infer_json([day, time]) == "x timestamp"
    assert sl.infer_json([day, time, word]) == "x string"


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([b"{"], "record 1 of the sample is not JSON"),
        ([b"{}", b"[]"], "record 2 of the sample is not a JSON object"),
        ([b'{"x": 1}', b'{"x": "one"}'], "changes its type"),
        ([b'{"x": [1]}', b'{"x": {"y": 1}}'], "changes its type"),
        ([], "no field"),
    ],
)
def test_an_ambiguous_sample_is_refused(records: list[bytes], reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        sl.infer_json(records)
