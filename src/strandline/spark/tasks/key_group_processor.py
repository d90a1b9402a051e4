"""Run key groups in transformWithState. Spark stores state as bytes; the kernel encodes and decodes them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from strandline.execution.block_addresses import address
from strandline.execution.keyed_step import play_group, sender_of
from strandline.execution.prepare import Blocks, Steps
from strandline.execution.task_metrics import Measured, collected, with_metrics
from strandline.kernel.blocks.block import Block, pack, unpack
from strandline.spark.batch_properties import current_batch
from strandline.spark.patches.worker_gc import freeze_imports
from strandline.spark.tasks.state_map import BLOCK, PLACE, Held

Play = Callable[[int, Mapping[str, bytes], Sequence[Block]], tuple[Mapping[str, bytes | None], Blocks]]
"""Play one batch of a key group: from its address, state and input blocks to state changes and output blocks."""


class KeyGroupProcessor(StatefulProcessor):
    """Process one key group, one batch at a time. Blocks for later levels pass unchanged."""

    def __init__(self, play: Play, is_here: Callable[[int], bool]) -> None:
        self._play, self._is_here = play, is_here

    def init(self, handle: StatefulProcessorHandle) -> None:
        freeze_imports()
        self._state = handle.getMapState("blocks", PLACE, BLOCK)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        to = int(key[0])
        if not self._is_here(to):
            yield from (Row(kg=to, block=bytes(row.block)) for row in rows)
            return
        # Spark guarantees no order inside a group, and a replayed batch must give the same bytes.
        blocks = sorted((unpack(bytes(row.block), f"key group {to}, input") for row in rows), key=sender_of)
        begun, held, seen = time.perf_counter(), Held(self._state, to), collected(blocks)
        writes, sent = self._play(to, held, blocks)
        held.write(writes)
        if seen is not None:
            spent = Measured({"step": time.perf_counter() - begun - held.seconds, "state": held.seconds})
            (where, last), sent = sent[-1], sent[:-1]
            sent.append((where, with_metrics(last, seen + spent)))
        yield from (Row(kg=where, block=pack(block)) for where, block in sent)

    def close(self) -> None:
        pass


def play_level(steps: Steps, level: int) -> tuple[Play, Callable[[int], bool]]:
    """Return the play function of one level, and a test whether an address belongs to the level.

    Spark sends the function to each task, so it has only the steps of the level and those that they send rows to.
    """
    mine = [step for step in steps.values() if step.level == level]
    key_groups = {address(step, group): (step, group) for step in mine for group in range(step.groups)}
    targets = {route.step for step in mine for route in step.routes}
    steps = {number: step for number, step in steps.items() if number in targets}

    def play(to: int, held: Mapping[str, bytes], blocks: Sequence[Block]) -> tuple[Mapping[str, bytes | None], Blocks]:
        step, group = key_groups[to]
        return play_group(step, group, held, blocks, steps, current_batch())

    return play, key_groups.__contains__
