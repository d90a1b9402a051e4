"""transformWithState around the kernel's step: Spark keeps the bytes, the kernel knows what they mean."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from strandline.kernel.blocks import Block, pack, unpack
from strandline.kernel.output import Counts, to_block
from strandline.kernel.step import Ask, step
from strandline.kernel.watermarks import control_from_facts


class Held(Mapping[str, bytes]):
    """A key group's map state, read entry by entry and only when asked."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def __getitem__(self, place: str) -> bytes:
        value = self._state.getValue((place,))
        if value is None:
            raise KeyError(place)
        return bytes(value[0])

    def __iter__(self) -> Iterator[str]:
        return (row[0] for row in self._state.keys())  # noqa: SIM118 - a state, not a dict

    def __len__(self) -> int:
        return sum(1 for _ in self)


class KeyGroupProcessor(StatefulProcessor):
    """One key group, one batch at a time."""

    def __init__(self, ask_of: Callable[[int], Ask]) -> None:
        self._ask_of = ask_of

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getMapState("blocks", "place string", "block binary")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        group = int(key[0])
        # Spark promises no order inside a group, and a replayed batch must give the same bytes.
        blocks = sorted((unpack(bytes(row.block), f"key group {group}, input") for row in rows), key=_place)
        controls = [control_from_facts(block.facts["control"]) for block in blocks]
        counts = sum((Counts(**block.facts["counts"]) for block in blocks), Counts())
        stepped = step(Held(self._state), blocks, controls, self._ask_of(group))
        for place, data in stepped.writes.items():
            if data is not None:
                self._state.updateValue((place,), (data,))
            elif self._state.containsKey((place,)):
                self._state.removeKey((place,))
        letters = [block.frames["dead"] for block in blocks if "dead" in block.frames]
        dead = pl.concat(letters) if letters else None
        yield Row(kg=group, block=pack(to_block(stepped, dead, counts)))

    def close(self) -> None:
        pass


def _place(block: Block) -> str:
    """Where a block's rows stood in the source: no two tasks read the same."""
    return repr(block.facts["control"]["seen"])
