"""Dead letters, wherever they arise: one envelope, the same when played again, and nothing told that is masked."""

import hashlib
import struct
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.errors import BudgetExceeded, PlanError
from strandline.formats.avro.codec import Avro
from strandline.formats.csv import Csv
from strandline.formats.json.codec import Json
from strandline.kernel.dead_letters import (
    NAMES,
    PUBLIC,
    SCHEMA,
    complete_envelopes,
    no_letters,
    reasons_of,
    with_source,
)
from strandline.kernel.output import Counts
from strandline.plan.compile import to_stages
from strandline.plan.endpoints import dead_table
from strandline.plan.nodes import fingerprint
from strandline.plan.pipeline import Pipeline
from strandline.ports.dead_letter_masking import mask_json, outgoing
from strandline.spark.delivery.dead_letter_limit import BudgetUsage, failure_budget
from tests.plan.endpoints import PaperSink
from tests.spark.by_hand import Carrier, frame_of
from tests.spark.by_hand import rows as records
from tests.spark.test_flows import rows, timed, totals, typed

CLOCK = 1_700_000_000_000
RED = b'{"team": "red", "user": "u1", "score": 5, "at": "1970-01-01T00:00:01Z"}'


def careful(frame: pl.DataFrame) -> pl.DataFrame:
    if (frame["score"] < 0).any():
        raise ValueError("a negative score")
    return frame


def letters(pipeline: Pipeline, *batch: pl.DataFrame) -> list[dict[str, Any]]:
    """The envelopes of one batch of the first source, as a job of the lineage `mine` would tell them."""
    output = Carrier(to_stages(pipeline.root)).carry_frames({0: [*batch]}, CLOCK)[0]
    assert output.dead is not None
    return complete_envelopes(output.dead, "mine", CLOCK).rename(NAMES).to_dicts()


def read_scores() -> Any:
    return sl.read(sl.scores()).event_time("at", sl.bounded(seconds=1))


def test_a_record_that_does_not_decode_has_an_envelope_without_a_hole_that_could_be_filled() -> None:
    broken = b'{"team": '
    (letter,) = letters(totals(read_scores()).write(PaperSink()), frame_of(records(RED, broken, first=7)))
    assert letter.keys() == PUBLIC.keys()
    assert (
        letter.pop("id")
        == hashlib.sha256(f'["mine", "{sl.scores().name}", "0", 8, "decode", "undecodable"] 1'.encode()).hexdigest()[
            :32
        ]
    )
    assert letter == {
        "reason": "undecodable",
        "exception": None,
        "detail": "not a JSON object",
        "raw": broken,
        "raw_length": 9,
        "raw_sha256": hashlib.sha256(broken).hexdigest(),
        "masked": None,
        "source": sl.scores().name,
        "source_partition": "0",
        "source_offset": 8,
        "event_time": None,
        "pipeline": "mine",
        "step": "decode",
        "schema_id": None,
        "first_seen": CLOCK,
    }


def test_each_place_where_a_letter_arises_says_which_it_is_and_what_it_knows() -> None:
    def explodes(row: dict[str, Any]) -> list[dict[str, Any]]:
        return [row, {**row, "score": row["score"] - 3}]

    columns = "team string, score long, at timestamp"
    below = sl.UserAggregate("score", int, _no_nines, int, name="below")
    twice = timed().flat_map(explodes, columns).map(careful, columns)
    panes = twice.key_by("team").window(sl.tumbling(seconds=10)).aggregate(below=below)
    given = rows(("red", 2, 1), ("blue", 9, 4), ("jade", 20, None))
    found = letters(panes.write(PaperSink()), given)
    told = [(each["step"], each["reason"], each["exception"], each["source_offset"]) for each in found]
    assert sorted(told, key=str) == [
        ("aggregate below by team", "function_failed", "ValueError", 1),
        ("aggregate below by team", "function_failed", "ValueError", 1),
        ("event_time", "no_event_time", None, 2),
        ("event_time", "no_event_time", None, 2),
        ("map careful", "function_failed", "ValueError", 0),
    ]
    assert [each["event_time"] for each in found if each["step"] == "map careful"] == [1_000]
    assert len({each["id"] for each in found}) == len(found)
    assert {each["source"] for each in found} == {"typed"}


def test_a_letter_of_a_salted_step_names_the_step_as_it_was_written() -> None:
    below = sl.UserAggregate("score", int, _no_nines, int, name="below")
    plain = timed().key_by("team").window(sl.tumbling(seconds=10))
    found = letters(
        plain.hot_keys(salt=4).aggregate(below=below, n=sl.count()).write(PaperSink()),
        rows(("red", 2, 1), ("blue", 9, 4)),
    )
    assert [(each["step"], each["source_offset"]) for each in found] == [("aggregate below, n by team", 1)]


def _no_nines(kept: int, value: int) -> int:
    if value == 9:
        raise ValueError("nine")
    return kept + value


def test_a_function_before_the_event_time_fails_with_the_time_all_the_same() -> None:
    mapped = typed().map(careful, "team string, score long, at timestamp").event_time("at", sl.monotone())
    (letter,) = letters(totals(mapped).write(PaperSink()), rows(("red", -1, 7)))
    assert letter["event_time"] == 7_000


def test_a_pane_that_a_function_cannot_take_is_no_record_of_a_source() -> None:
    panes = totals(timed()).map(_never, "team string, total long")
    carrier = Carrier(to_stages(panes.write(PaperSink()).root))
    carrier.carry_frames({0: [rows(("red", 1, 1))]}, CLOCK)
    dead = carrier.carry_frames({}, CLOCK, drain=True)[0].dead
    assert dead is not None
    (letter,) = complete_envelopes(dead, "mine", CLOCK).rename(NAMES).to_dicts()
    assert (letter["source"], letter["step"], letter["exception"]) == (None, "map _never", "RuntimeError")


def _never(_: pl.DataFrame) -> pl.DataFrame:
    raise RuntimeError("never")


def test_a_batch_played_again_seals_the_same_envelopes_in_the_same_order_whichever_task_came_first() -> None:
    pipeline = totals(timed().map(careful, "team string, score long, at timestamp")).write(PaperSink())
    one, other = rows(("red", -1, 1), ("blue", -2, 2)), rows(("red", -1, 1), ("jade", 3, None))
    assert letters(pipeline, one, other) == letters(pipeline, one, other)
    dead = Carrier(to_stages(pipeline.root)).carry_frames({0: [one, other]}, CLOCK)[0].dead
    assert dead is not None
    assert complete_envelopes(dead.reverse(), "mine", CLOCK).equals(complete_envelopes(dead, "mine", CLOCK))


def test_two_letters_of_one_place_and_step_have_ids_of_their_own_and_so_have_two_pipelines() -> None:
    output = Carrier(to_stages(totals(read_scores()).write(PaperSink()).root)).carry([records(b"?")], CLOCK)
    assert output.dead is not None
    twice = pl.concat([output.dead, output.dead])
    ids = [each for name in ("mine", "theirs") for each in complete_envelopes(twice, name, CLOCK)["@id"]]
    assert len(set(ids)) == 4


def test_the_id_of_a_schema_is_read_from_the_frame_where_there_is_one() -> None:
    values = [struct.pack(">BI", 0, 41) + b"rest", b"\x01\x00\x00\x00\x29rest", b"\x00\x00", None]
    frame = no_letters().clear(4).with_columns(pl.Series("@raw", values, pl.Binary))
    assert with_source(frame, "topic", framed=True)[SCHEMA].to_list() == [41, None, None, None]
    assert with_source(frame, "topic")[SCHEMA].to_list() == [None] * 4


def hidden(decoder: Any, values: Sequence[bytes | None], mask: Sequence[str], **known: str) -> list[dict[str, Any]]:
    """What is left of letters with these bytes after masking."""
    frame = no_letters().clear(len(values)).with_columns(
        pl.Series("@raw", values, pl.Binary), pl.lit("0").alias("@partition"), pl.lit(1).alias("@offset"),
        **{f"@{name}": pl.lit(value) for name, value in {"reason": "undecodable", **known}.items()},
    )  # fmt: skip
    return outgoing(frame, "topic", decoder, mask).rename(NAMES, strict=False).to_dicts()


JSON = Json("card string, score long")
CSV = Csv("card string, score long")


def test_a_masked_field_of_json_is_hidden_at_any_depth_and_in_the_detail() -> None:
    value = b'{"Card": "4111-x", "score": "4111-x", "in": [{"card": {"no": "77\\"7"}, "city": "Ulm"}]}'
    (left,) = hidden(JSON, [value], ["card"], detail='cannot read 4111-x, "no": "77\\"7"')
    assert left["raw"] == b'{"Card": "***", "score": "4111-x", "in": [{"card": "***", "city": "Ulm"}]}'
    assert left["detail"] == 'cannot read ***, "no": "***"'
    assert (left["masked"], left["raw_length"], left["raw_sha256"]) == ("fields", len(value), None)


def test_a_record_that_cannot_be_told_apart_is_withheld_with_its_length_and_hash() -> None:
    values = [b'{"card": "4111', b"[1]", b'"4111"', b"\xff\xfe", b"[" * 100_000]
    for left, value in zip(hidden(JSON, values, ["card"], detail="near 4111"), values, strict=True):
        assert (left["raw"], left["detail"], left["masked"]) == (None, "withheld", "all")
        assert (left["raw_length"], left["raw_sha256"]) == (len(value), hashlib.sha256(value).hexdigest())


def test_a_masked_column_of_csv_is_hidden_by_its_place() -> None:
    values = [b'"4111, x",many', b"4111,1,2", b'"4111']
    left = hidden(CSV, values, ["CARD"], detail="card: '4111, x'")
    assert [(each["raw"], each["masked"]) for each in left] == [(b"***,many", "fields"), (None, "all"), (None, "all")]
    assert left[0]["detail"] == "card: '***'"


def test_avro_is_told_as_json_of_its_columns_with_the_fields_masked() -> None:
    form = Avro("card string, score long")
    value = form.encode(pl.DataFrame({"card": ["4111"], "score": [7]}))[0]
    left = hidden(form, [value, value[:2], None], ["card"])
    assert [each["raw"] for each in left] == [b'{"card": "***", "score": 7}', None, None]
    assert [each["masked"] for each in left] == ["fields", "all", None]


def test_what_a_users_function_said_is_withheld_where_anything_is_masked() -> None:
    (left,) = hidden(JSON, [b'{"card": "4111"}'], ["card"], reason="function_failed", detail="ValueError: 1114",
                     exception="ValueError")  # fmt: skip
    assert (left["detail"], left["exception"]) == ("ValueError: withheld", "ValueError")


def test_nothing_of_a_masked_field_leaves_the_pipeline_from_a_record_or_a_pane() -> None:
    def tells(frame: pl.DataFrame) -> pl.DataFrame:
        raise ValueError(f"cannot take {frame['team'][0]}")

    dead = dead_table(mask=["team"])
    elements = timed().map(tells, "team string, score long, at timestamp")
    panes = totals(timed()).map(tells, "team string, total long")
    for pipeline in (totals(elements).write(PaperSink(), dead=dead), panes.write(PaperSink(), dead=dead)):
        carrier = Carrier(to_stages(pipeline.root))
        told = [carrier.carry_frames({0: [rows(("secret", 1, 1))]}, CLOCK), carrier.carry_frames({}, 0, drain=True)]
        (found,) = [output.dead for (output,) in told if output.dead is not None]
        assert found["@masked"].to_list() == ["fields"]
        assert "secret" not in str(found.to_dicts())


def test_json_over_several_lines_is_one_record_to_a_mask() -> None:
    found = mask_json(b'{\n"card": 1\n}', frozenset({"card"}))
    assert found is not None
    assert found.value == b'{"card": "***"}'


@pytest.mark.parametrize(("mask", "why"), [("card", "is a string"), ([""], "has no name"), ([1], "a list of a text")])
def test_a_mask_that_names_no_fields_is_refused(mask: Any, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        dead_table(mask=mask)


def test_a_place_for_dead_letters_must_be_one() -> None:
    with pytest.raises(PlanError, match="as dead"):
        totals(timed()).write(PaperSink(), dead="dead/")  # type: ignore[arg-type]


def test_where_letters_go_is_explained_and_makes_no_other_job() -> None:
    plain, masked = totals(timed()).write(PaperSink()), totals(timed()).write(PaperSink(), dead=dead_table(mask=["a"]))
    assert fingerprint(plain.root) == fingerprint(masked.root)
    assert "dead letters to the sink's own table, a masked" in masked.explain()


def test_a_budget_is_a_share_over_a_time_and_says_what_is_wrong() -> None:
    spending = BudgetUsage(failure_budget(0.5, over="1m", at_least=10))
    spending.spend(0, Counts(read=9, dead=9), {"undecodable": (9, "old")})  # too few to say
    spending.spend(61_000, Counts(read=10, dead=5), {"undecodable": (4, "not JSON"), "future": (1, "")})
    with pytest.raises(BudgetExceeded, match="16 of the last 30 records are dead letters") as problem:
        spending.spend(121_000, Counts(read=20, dead=11), {"function_failed": (10, "ValueError: x"), "future": (1, "")})
    told = "10 function_failed, as in: ValueError: x; 4 undecodable, as in: not JSON; 2 future"
    assert problem.value.detail == f"{told}; the failure budget is 50.0% over 1m"


def test_rows_that_a_sink_refuses_use_the_budget() -> None:
    spending = BudgetUsage(failure_budget(0.5, over="1m", at_least=10))
    spending.spend(0, Counts(read=10, contributed=10), {}, 5)
    assert spending.spent == pytest.approx(1.0)
    with pytest.raises(BudgetExceeded, match="9 of the last 14 records") as problem:
        spending.spend(1, Counts(read=4, contributed=4), {}, 4)
    assert problem.value.detail.startswith("9 sink_refused; the failure budget")


def test_reasons_are_counted_over_all_outputs() -> None:
    frame = pl.DataFrame({"@reason": ["a", "b", "a"], "@detail": ["first", None, "second"]})
    assert reasons_of([frame, frame]) == {"a": (4, "first"), "b": (2, "")}
