"""Contract of sinks for each delivery guarantee, as `spark/delivery/deliver.py` uses them, and with two drivers at
once."""

import threading

import pytest

from strandline.errors import Fenced
from strandline.plan.endpoints import Delivery
from strandline.ports.ledger import Recorded
from strandline.ports.sinks import OpenSink
from strandline.spark.delivery.deliver import Retry, deliver
from tests.contracts.sinks import entry, opened, pane, panes
from tests.contracts.stores import Store


@pytest.mark.needs("views", Delivery.AT_LEAST_ONCE)
def test_a_write_without_a_ledger_check_is_written_again(store: Store, sink: OpenSink) -> None:
    again = entry(sink, 3)
    for _ in range(2):
        assert sink.write(panes(pane("red", 5)), again).fresh
    assert [row["total"] for row in store.read()] == [5, 5]
    assert [row["total"] for row in store.read("totals_now")] == [5]
    assert sink.latest("mine") is None


@pytest.mark.needs(Delivery.AT_MOST_ONCE)
def test_a_marked_batch_is_not_written_again(store: Store, sink: OpenSink) -> None:
    marked = entry(sink, 0)
    assert sink.mark(panes(pane("red", 5)), marked).fresh
    assert store.read() == []
    assert not sink.mark(panes(pane("red", 5)), marked).fresh
    assert sink.latest("mine") == Recorded(0, "d", 5_000)
    sink.write(panes(pane("red", 5)), marked)
    assert [row["total"] for row in store.read()] == [5]


@pytest.mark.parametrize("act", ["commit", "mark", "write"])
def test_an_older_driver_is_fenced_from_every_operation(store: Store, act: str) -> None:
    older, newer = opened(store), opened(store)
    first = entry(older, 0)
    newer.claim("mine")
    with pytest.raises(Fenced, match="another driver has taken over this job"):
        getattr(older, act)(panes(pane("red", 5)), first)
    assert store.read() == []
    older.close()
    newer.close()


@pytest.mark.slow
def test_two_drivers_that_fence_each_other_write_each_batch_once(store: Store) -> None:
    batches, problems = 10, list[str]()
    retry = Retry(shortest=0.001)

    def drive(sink: OpenSink) -> None:
        epoch: int | None = None
        batch = 0
        try:
            while batch < batches:
                output = panes(pane(f"team {batch}", batch))
                try:
                    # Fenced in the middle of a claim, too: then the other has just claimed.
                    epoch = retry.until_done(lambda: sink.claim("mine")) if epoch is None else epoch
                    due = entry(sink, batch, digest=f"range {batch}", epoch=epoch)
                    deliver(sink, Delivery.EXACTLY_ONCE, output, due, retry)
                    batch += 1
                except Fenced:
                    epoch = None
        except BaseException as problem:  # noqa: BLE001 - told by the thread that waits
            problems.append(str(problem))

    sinks = [opened(store), opened(store)]
    drivers = [threading.Thread(target=drive, args=[sink]) for sink in sinks]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    for sink in sinks:
        sink.close()
    assert problems == []
    assert [row["total"] for row in store.read()] == list(range(batches))
