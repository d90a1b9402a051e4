"""List the peers besides Spark: programs, environments, guarantees, and our floors and goals."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ABSENT: Final = "is not here"
"""Prefix of the failure of a peer that cannot be installed."""
JAVA: Final = "java"
"""Environment name of Java programs, whose packages are jars."""
PRISM: Final = "github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0"
"""Beam's runner in Go."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A system that runs the same query."""

    name: str
    title: str
    promise: str
    """Its guarantees as configured here, and its state store."""
    environment: str = ""
    """None: it is Strandline."""
    program: str = ""
    command: str = ""
    """Go module of a command that the program starts; its path is the first argument."""
    by_topic: bool = False
    """Whether it reads from a broker instead of a line file."""
    longer: bool = False
    """Whether its corpus is doubled, since a JVM compiles for half a minute."""
    is_fast: bool = True
    """Whether it gets all keys; otherwise each 20th, with all of its events."""
    floor: float | None = None
    goal: float | None = None


_ALL: Final = (
    Peer("ours-lines", "ours over the same lines",
         "exactly once into any sink with a ledger; RocksDB; late elements are handed out, all are counted",
         longer=True),
    Peer("bytewax", "Bytewax 0.21, one worker",
         "none: no recovery store; state in memory; late events are dropped",
         "bytewax", "on_bytewax", is_fast=False, floor=3.0, goal=10.0),
    Peer("pathway", "Pathway 0.33, one thread",
         "none: no persistence; state in memory; late events are dropped",
         "pathway", "on_pathway", floor=0.3, goal=0.7),
    Peer("beam", "Beam 2.77, its Python runner, one worker",
         "none: a bounded run in one process; state in memory",
         "beam", "on_beam", is_fast=False, floor=10.0, goal=50.0),
    Peer("beam-prism", "Beam 2.77 by Prism, its runner in Go",
         "none: a bounded run on one machine; state in memory",
         "beam", "on_beam_prism", PRISM, is_fast=False, floor=5.0, goal=20.0),
    Peer("flink-sql", "Flink SQL 2.3, two slots",
         "exactly once, a checkpoint every second; RocksDB; late events are dropped; its windows go to files",
         "flink", "on_flink_sql", longer=True, floor=0.3, goal=0.8),
    Peer("pyflink", "PyFlink 2.3, DataStream, process mode, two slots",
         "exactly once, a checkpoint every second; RocksDB; late events are dropped; its windows go to files",
         "flink", "on_pyflink", is_fast=False, floor=3.0, goal=10.0),
    Peer("pyflink-thread", "PyFlink 2.3, DataStream, thread mode, two slots",
         "exactly once, a checkpoint every second; RocksDB; late events are dropped; its windows go to files",
         "flink", "on_pyflink_thread", is_fast=False, floor=2.0, goal=5.0),
    Peer("ours-topic", "ours over the same topic",
         "exactly once into any sink with a ledger; RocksDB; late elements are handed out, all are counted",
         by_topic=True, longer=True),
    Peer("quix", "Quix Streams 3.28, one process",
         "at least once; RocksDB; late events are dropped",
         "quix", "on_quix", by_topic=True, longer=True, is_fast=False, floor=5.0, goal=20.0),
    Peer("kafka-streams", "Kafka Streams 4.3, two threads",
         "at least once, a commit every second; RocksDB; late events are dropped",
         JAVA, "Totals.java", by_topic=True, longer=True, floor=0.7, goal=1.5),
)  # fmt: skip
PEERS: Final[Mapping[str, Peer]] = {peer.name: peer for peer in _ALL}
