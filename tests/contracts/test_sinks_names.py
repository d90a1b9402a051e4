"""Contract of sinks for names: unusual names work, and user columns take precedence."""

import polars as pl
import pytest

import strandline as sl
from strandline.kernel.output import Output
from strandline.ports.sinks import OpenSink
from tests.contracts.sinks import entry, late, opened, pane, panes
from tests.contracts.stores import Store


@pytest.mark.needs("views")
@pytest.mark.parametrize("name", ['my "own" totals', "größe 日本", "select", "a'b; DROP TABLE x", "Robert); --"])
def test_odd_names_are_names_like_any_other(store: Store, name: str) -> None:
    key, value = f"{name} key", f"{name} value"
    sink = opened(store, keys=(key,), table=name, names={value: sl.sum("score")})
    result = pane(None, 5) | {key: name, value: 5}
    output = panes({column: cell for column, cell in result.items() if column not in ("team", "total")})
    sink.commit(Output(output.panes, late("red", 1).rename({"team": key})), entry(sink, 0))
    assert [(row[key], row[value]) for row in store.read(name)] == [(name, 5)]
    assert [(row[key], row[value]) for row in store.read(f"{name}_now")] == [(name, 5)]
    assert [row[key] for row in store.read(f"{name}_late")] == ["red"]
    sink.close()


@pytest.mark.needs("views")
@pytest.mark.parametrize("name", ["batch", "Batch", "window_start", "pane_index", "is_last", "newest"])
def test_a_users_column_keeps_its_name_and_value_whatever_the_sink_calls_its_own(store: Store, name: str) -> None:
    sink = opened(store, names={name: sl.sum("score")})
    epoch = sink.claim("mine")
    for batch, value in enumerate((41, 1)):
        result = {**pane("red", 0, batch), name: value}
        del result["total"]
        sink.commit(panes(result), entry(sink, batch, epoch=epoch))
    assert [row[name] for row in store.read()] == [41, 1]
    assert [row[name] for row in store.read("totals_now")] == [1]
    sink.close()


def test_a_late_element_keeps_its_columns_whatever_the_sink_calls_its_own(store: Store, sink: OpenSink) -> None:
    own = {"event_time": 5, "reason": 6, "watermark": 7, "source_offset": 8}
    result = late("red", 1).with_columns(**{name: pl.lit(value) for name, value in own.items()})
    sink.commit(Output(late=result), entry(sink, 0))
    (row,) = store.read("totals_late")
    assert {name: row[name] for name in own} == own
    assert "expired" in row.values()
