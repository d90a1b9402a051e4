"""Change events as a changelog: inserts, updates as two rows, deletes, tombstones, and invalid envelopes."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest

import strandline as sl
from strandline.errors import InvalidStep
from strandline.formats.debezium import CHANGE, CHANGED_AT
from strandline.kernel.blocks.block import OFFSET
from strandline.ports.codecs import DETAIL, REASON
from tests.formats.batches import raw

FORM = sl.debezium("id long, name string")
WHEN = datetime(2024, 5, 1, 12, tzinfo=UTC)
MS = 1_714_564_800_000
ANN, BOB = {"id": 1, "name": "Ann", "extra": [1]}, {"id": 1, "name": "Bob"}


def event(op: Any, before: Any = None, after: Any = None, *, wrapped: bool = False, **more: Any) -> bytes:
    found = {"before": before, "after": after, "op": op, "source": {"ts_ms": MS, "db": "shop"}, "ts_ms": MS + 5, **more}
    return json.dumps({"schema": {"type": "struct"}, "payload": found} if wrapped else found).encode()


@pytest.mark.parametrize("wrapped", [True, False], ids=["with its schema", "without"])
def test_every_operation_yields_its_rows(wrapped: bool) -> None:
    events = [
        event("r", after=ANN, wrapped=wrapped),
        event("u", ANN, BOB, wrapped=wrapped),
        event("d", BOB, wrapped=wrapped),
        None,
        event("c", after=ANN, wrapped=wrapped),
        event("u", None, BOB, wrapped=wrapped),
    ]
    decoded = FORM.decode(raw(events))
    assert decoded.rows.select(OFFSET, *FORM.columns).rows() == [
        (100, 1, "Ann", "insert", WHEN),
        (101, 1, "Ann", "update_before", WHEN),
        (101, 1, "Bob", "update_after", WHEN),
        (102, 1, "Bob", "delete", WHEN),
        (103, None, None, "delete", None),
        (104, 1, "Ann", "insert", WHEN),
        (105, 1, "Bob", "update_after", WHEN),
    ]
    assert decoded.dead.is_empty()
    assert FORM.types == {"id": "long", "name": "string", CHANGE: "string", CHANGED_AT: "timestamp"}


BAD = {
    "not JSON": b"{",
    "no envelope": b'{"id": 1}',
    "a truncate": event("t"),
    "a message": event("m"),
    "an operation that nobody knows": event("?"),
    "an insert without a row": event("c"),
    "a delete without a row": event("d"),
    "an update without the row after it": event("u", ANN),
    "a field of another type": event("c", after={"id": "one"}),
    "a number out of range": event("c", after={"id": 2**63}),
    "a field twice": event("c", after=ANN).replace(b'"id": 1', b'"id": 1, "id": 2'),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_envelope_is_a_dead_letter_and_its_neighbours_are_decoded(kind: str) -> None:
    decoded = FORM.decode(raw([event("c", after=ANN), BAD[kind], event("d", ANN)]))
    assert decoded.rows.select(OFFSET, "change").rows() == [(100, "insert"), (102, "delete")]
    assert decoded.dead.select(OFFSET, REASON).rows() == [(101, "undecodable")]
    assert decoded.dead[DETAIL][0]


@pytest.mark.parametrize(
    ("times", "at", "day"),
    [("ms", MS, 19_844), ("us", MS * 1000, 19_844), ("iso", "2024-05-01T12:00:00Z", "2024-05-01")],
)
def test_times_are_read_as_the_connector_writes_them(times: str, at: Any, day: Any) -> None:
    form = sl.debezium("at timestamp, day date", times=times)
    decoded = form.decode(raw([event("c", after={"at": at, "day": day})]))
    assert decoded.rows.select("at", "day").rows() == [(WHEN, date(2024, 5, 1))]


def test_a_time_outside_the_calendar_is_a_dead_letter() -> None:
    form = sl.debezium("at timestamp")
    decoded = form.decode(raw([event("c", after={"at": -62_135_596_800_001}), event("c", after={"at": MS})]))
    assert decoded.rows[OFFSET].to_list() == [101]
    assert decoded.dead[OFFSET].to_list() == [100]


def test_empty_frames_have_their_columns() -> None:
    full = FORM.decode(raw([event("c", after=ANN)])).rows.schema
    for values in ([], [b"?"], [None]):
        assert FORM.decode(raw(values)).rows.schema == full


@pytest.mark.parametrize("ddl", ["change string", "id long, changed_at timestamp", "tags array<string>"])
def test_unsupported_columns_are_refused(ddl: str) -> None:
    with pytest.raises(InvalidStep):
        sl.debezium(ddl)
    with pytest.raises(InvalidStep, match="unknown times"):
        sl.debezium("id long", times="hours")
