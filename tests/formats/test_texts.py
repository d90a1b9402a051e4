"""Text and raw formats."""

import polars as pl
import pytest

import strandline as sl
from strandline.errors import InvalidStep
from strandline.kernel.blocks.block import OFFSET
from strandline.ports.codecs import DETAIL, REASON
from tests.formats.batches import raw


def test_texts_are_decoded_and_invalid_utf8_is_a_dead_letter() -> None:
    decoded = sl.text("line").decode(raw([b"red", None, b"\xff", b"", "é".encode()]))
    assert decoded.rows.select(OFFSET, "line").rows() == [(100, "red"), (101, None), (103, ""), (104, "é")]
    assert decoded.dead.select(OFFSET, REASON, DETAIL).rows() == [(102, "undecodable", "a text that is not UTF-8")]


def test_bytes_are_kept_unchanged() -> None:
    decoded = sl.raw().decode(raw([b"\xff\0", None]))
    assert decoded.rows["value"].to_list() == [b"\xff\0", None]
    assert decoded.dead.is_empty()


def test_empty_frames_have_their_columns() -> None:
    assert sl.text().decode(raw([])).rows.schema["value"] == pl.String
    assert sl.raw().decode(raw([])).rows.schema["value"] == pl.Binary
    assert (sl.text().types, sl.raw("b").types) == ({"value": "string"}, {"b": "binary"})


def test_a_record_that_is_too_large_is_a_dead_letter() -> None:
    for form in (sl.text(largest=3), sl.raw(largest=3)):
        decoded = form.decode(raw([b"abc", b"abcd"]))
        assert decoded.rows.height == 1
        assert decoded.dead[REASON].to_list() == ["too_large"]


def test_values_are_encoded_unchanged() -> None:
    assert sl.text().encode(pl.DataFrame({"value": ["é", None]})).to_list() == ["é".encode(), None]
    assert sl.raw().encode(pl.DataFrame({"value": [b"\0"]})).to_list() == [b"\0"]


def test_an_invalid_column_or_size_limit_is_refused() -> None:
    for wrong in (lambda: sl.text("@at"), lambda: sl.raw("two words"), lambda: sl.text(largest=0)):
        with pytest.raises(InvalidStep):
            wrong()
