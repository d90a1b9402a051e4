"""Read and write the map state of a key group, entry by entry, through a cache."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql.types import BinaryType, StringType, StructType

from strandline.kernel.state.slice_store import INDEX, digests_in
from strandline.spark.tasks.block_cache import CACHE, BlockCache

PLACE: Final = StructType().add("place", StringType())
"""Schema of a state key. As DDL text, Spark would parse it in every task."""
BLOCK: Final = StructType().add("block", BinaryType())


class Held(Mapping[str, bytes]):
    """The map state of one key group. A step reads the index first; it has the digest of every other block."""

    def __init__(self, state: Any, to: int, cache: BlockCache = CACHE) -> None:
        self._state, self._to, self._cache = state, to, cache
        self._digests: Mapping[str, str] = {}
        self.seconds = 0.0
        """Time spent in Spark's state calls."""

    def __getitem__(self, place: str) -> bytes:
        digest = self._digests.get(place)
        known = None if digest is None else self._cache.get(self._to, place, digest)
        if known is not None:
            return known
        data = self._read(place)
        if digest is not None:
            self._cache.keep(self._to, place, digest, data)
        if place == INDEX:
            self._digests = digests_in(data)
            self._cache.begin(self._to, self._digests)
        return data

    def __iter__(self) -> Iterator[str]:
        return (row[0] for row in self._state.keys())  # noqa: SIM118 - a state, not a dict

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def write(self, writes: Mapping[str, bytes | None]) -> None:
        """Write these blocks; None removes one."""
        started = time.perf_counter()
        index = writes.get(INDEX)
        digests = {} if index is None else digests_in(index)
        for place, data in writes.items():
            if data is None:
                self._state.removeKey((place,))
                self._cache.forget(self._to, place)
            else:
                self._state.updateValue((place,), (data,))
                if place in digests:
                    self._cache.keep(self._to, place, digests[place], data)
        self.seconds += time.perf_counter() - started

    def _read(self, place: str) -> bytes:
        started = time.perf_counter()
        value = self._state.getValue((place,))
        self.seconds += time.perf_counter() - started
        if value is None:
            raise KeyError(place)
        return bytes(value[0])
