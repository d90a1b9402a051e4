"""What a key group holds, as Spark keeps it: read entry by entry, only when asked, and only if it is not remembered."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql.types import BinaryType, StringType, StructType

from strandline.kernel.state.slice_store import INDEX, digests_in
from strandline.spark.tasks.block_cache import LATELY, Remembered

PLACE: Final = StructType().add("place", StringType())
"""What an entry is kept under. In words, every task would have Spark parse it."""
BLOCK: Final = StructType().add("block", BinaryType())


class Held(Mapping[str, bytes]):
    """The map state of one key group. The index is read first, as every step does, and tells what else counts."""

    def __init__(self, state: Any, to: int, lately: Remembered = LATELY) -> None:
        self._state, self._to, self._lately = state, to, lately
        self._digests: Mapping[str, str] = {}
        self.seconds = 0.0
        """What reading and writing took."""

    def __getitem__(self, place: str) -> bytes:
        digest = self._digests.get(place)
        known = None if digest is None else self._lately.recall(self._to, place, digest)
        if known is not None:
            return known
        data = self._read(place)
        if digest is not None:
            self._lately.keep(self._to, place, digest, data)
        if place == INDEX:
            self._digests = digests_in(data)
            self._lately.begin(self._to, self._digests)
        return data

    def __iter__(self) -> Iterator[str]:
        return (row[0] for row in self._state.keys())  # noqa: SIM118 - a state, not a dict

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def write(self, writes: Mapping[str, bytes | None]) -> None:
        """What stands at these places from now on; None for nothing."""
        begun = time.perf_counter()
        index = writes.get(INDEX)
        digests = {} if index is None else digests_in(index)
        for place, data in writes.items():
            if data is None:
                self._state.removeKey((place,))
                self._lately.forget(self._to, place)
            else:
                self._state.updateValue((place,), (data,))
                if place in digests:
                    self._lately.keep(self._to, place, digests[place], data)
        self.seconds += time.perf_counter() - begun

    def _read(self, place: str) -> bytes:
        asked = time.perf_counter()
        value = self._state.getValue((place,))
        self.seconds += time.perf_counter() - asked
        if value is None:
            raise KeyError(place)
        return bytes(value[0])
