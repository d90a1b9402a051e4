"""Addresses: every key group has its own, and the partitions of a shuffle take turns."""

from collections import Counter
from typing import Any

import pytest

from strandline.execution.block_addresses import address, place, to_deliver, to_deliver_from
from strandline.plan.compile import to_stages
from tests.plan.endpoints import totals

(STEP,) = to_stages(totals().root, groups=256).steps


def everybody() -> list[int]:
    groups = range(STEP.groups)
    mine, sent = [address(STEP, group) for group in groups], [to_deliver_from(group) for group in groups]
    return [*mine, *sent, *(to_deliver(task) for task in range(1_000))]


def test_no_two_are_the_same_and_each_fits_a_long() -> None:
    found = everybody()
    assert len(set(found)) == len(found)
    assert all(-(2**63) <= to < 2**63 for to in found)


def test_an_address_tells_what_it_stands_for() -> None:
    assert place(address(STEP, 7)) == (STEP.number, 7)
    assert place(to_deliver_from(7)) == (-2, 7)
    assert place(to_deliver(300)) == (-1, 300)


def test_what_is_delivered_is_below_every_key_group() -> None:
    assert all(to_deliver_from(group) < 0 <= address(STEP, group) for group in range(STEP.groups))


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [2, 3, 4, 16])
def test_spark_gives_each_partition_its_share(spark: Any, partitions: int) -> None:
    groups = [(address(STEP, group),) for group in range(48)]
    placed = spark.createDataFrame(groups, "kg long").selectExpr(f"pmod(hash(kg), {partitions}) AS p").collect()
    assert set(Counter(row.p for row in placed).values()) == {48 // partitions}
