"""The Spark session of a job of ours, embedded or submitted: every setting in one place, each with its reason."""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from strandline.errors import SetupError
from strandline.spark.launch import jvm
from strandline.spark.launch.background import Meanwhile
from strandline.spark.launch.class_data_sharing import ClassArchive
from strandline.spark.launch.find_java import Java, find_java
from strandline.spark.launch.fork_launcher import forking, started_by
from strandline.spark.launch.jars import missing, paths
from strandline.spark.launch.slim_spark_home import at_home, lean_home
from strandline.spark.patches.disable_codegen import spare_code
from strandline.spark.patches.hadoop_conf_trim import spare_traces
from strandline.spark.patches.hadoop_local_fs import spare_processes
from strandline.spark.patches.skip_data_source_lookup import spare_search

FILES: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


MOST_ROWS: Final = 200_000
BYTES_PER_BATCH: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS_PER_BATCH: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
OF_RECORDS: Final = {BYTES_PER_BATCH: str(64 * 2**20)}
"""Where raw records cross to Python, which may be long: an Arrow batch of more than two gigabytes would end the job."""
_VECTOR: Final = 2**31 - 1
"""So many bytes are in a column of an Arrow batch, at most."""
_FEWEST: Final = 500
"""Arrow batches of fewer records cost more than to ask for their size with every record."""


def of_records(longest: int | None) -> dict[str, str]:
    """What bounds an Arrow batch of records: how many there are, if it is known how long one can be; else their bytes.

    To ask for the bytes with every record takes a third of the time that Spark spends on one.
    """
    many = 0 if longest is None else _VECTOR // max(longest, 1)
    return {ROWS_PER_BATCH: str(min(many, MOST_ROWS))} if many >= _FEWEST else dict(OF_RECORDS)


_OF_THIS_MACHINE: Final = (
    "spark.master", "spark.driver.bindAddress", "spark.driver.host", "spark.ui.enabled", "spark.broadcast.compress",
    "spark.broadcast.blockSize", "spark.sql.sources.ignoreDataLocality",
)  # fmt: skip
"""What holds for a Spark inside this process, and for no other."""
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_CORES: Final = ("spark.default.parallelism", _PARTITIONS)

JAVA: Final = "spark.driver.extraJavaOptions"
SERIAL: Final = "-XX:+UseSerialGC"
ONE_LOG: Final = "-Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.BasicContextSelector"
"""Whoever asks for a logger is not looked up on the stack, to find the log of their class loader: there is one log."""
WITHOUT_ROWS: Final = {
    JAVA: f"-XX:TieredStopAtLevel=1 {SERIAL} {ONE_LOG}",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Where no row passes through Spark it only plans, shuffles and keeps state: what the JVM's second compiler would save
there is less than it costs, a quarter of a job's CPU time for minutes. And it makes little garbage: the usual collector
asks for more memory whenever it is kept waiting, the serial one only when what is in use needs it. The few blocks that
do pass are not worth the code that Spark would write for them, anew in every task."""
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC\b")
_OF_EVERY_JVM: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def settings(cores: int) -> dict[str, str]:
    """What a job of ours wants of Spark."""
    state = "spark.sql.streaming.stateStore"
    return {
        # Two of four numbers: threads, and task attempts; without the second a dead Python worker ends the query.
        "spark.master": f"local[{cores},4]",
        # transformWithState runs on RocksDB only; changelogs keep a commit as small as its change.
        f"{state}.providerClass": ROCKSDB,
        f"{state}.rocksdb.changelogCheckpointing.enabled": "true",
        # Counting rows costs a read for every write; blocks are counted by the kernel itself.
        f"{state}.rocksdb.trackTotalNumberOfRows": "false",
        f"{state}.rocksdb.boundedMemoryUsage": "true",
        # Each partition is a RocksDB and a Python worker; more than the cores only wait for each other.
        "spark.sql.shuffle.partitions": str(cores),
        # Rows cross to Python in large Arrow batches.
        ROWS_PER_BATCH: str(MOST_ROWS),
        # Below the largest number, Spark asks for the size of an Arrow batch with every row that it adds. Columns of
        # numbers need no such care; records do (OF_RECORDS).
        BYTES_PER_BATCH: str(_VECTOR),
        # A source's list of files is written anew with every so many batches; what that replaces stays for ten minutes,
        # and Spark looks through all of it with every batch.
        "spark.sql.streaming.fileSource.log.cleanupDelay": "1m",
        # With every tenth one, as is usual, each file that ever was is read and written there several times a minute.
        "spark.sql.streaming.fileSource.log.compactInterval": "100",
        # The usual manager starts a process for every log entry it writes to a local disk, to ask about links.
        "spark.sql.streaming.checkpointFileManagerClass": FILES,
        # Plans of several steps have more classes than the hundred that are kept, and would be compiled every batch.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # As is usual, and said for a session whose last job had no rows (WITHOUT_ROWS).
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        # A job that has nothing to do asks its sources whether there is something; every ten milliseconds, as is usual,
        # that takes half a core.
        "spark.sql.streaming.pollingDelay": "50ms",
        # State calls are round trips; a Unix socket makes them shorter.
        "spark.python.unix.domain.socket.enabled": "true",
        # Spark shortens the errors of some functions and not of others, and keeps the workers of both apart. With one
        # kind a worker that has prepared a batch steps through it too: half as many, each with its modules loaded once.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        # Steps over small frames lose more to a thread pool than they win.
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        # Memory of one batch is there for the next. Given back within half a second, as Polars does of its own accord,
        # it is asked for again page by page, a quarter of a worker's time.
        "spark.executorEnv._RJEM_MALLOC_CONF": "background_thread:false,dirty_decay_ms:60000,muzzy_decay_ms:60000",
        # Times are instants.
        "spark.sql.session.timeZone": "UTC",
        # Nothing listens beyond this machine, and nothing is served that nobody asked for.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        # What tasks have in common is written four times a batch, and here never leaves the process.
        "spark.broadcast.compress": "false",
        # Each time a block of four megabytes was made for a few thousand bytes: a third of the garbage of a batch.
        "spark.broadcast.blockSize": "256k",
        # Where a file is need not be asked of each that is listed: it is here.
        "spark.sql.sources.ignoreDataLocality": "true",
        "spark.ui.showConsoleProgress": "false",
    }


def start_session(
    name: str, *, log: Path, overrides: Mapping[str, str] | None = None, jars: bool = False, plain: bool = False
) -> SparkSession:
    """An embedded Spark for this process, once it is there."""
    return coming_session(name, log=log, overrides=overrides, jars=jars, plain=plain).there()


def coming_session(
    name: str,
    *,
    log: Path,
    overrides: Mapping[str, str] | None = None,
    jars: bool = False,
    java: Java | None = None,
    plain: bool = False,
) -> "Coming":
    """An embedded Spark that begins to be there: its JVM starts while the caller does something else, and then asks for
    it or gives it up. The JVM's own chatter goes to a file.

    Our jars are in it where they are on this machine, since a session that runs cannot be given any, and the next job
    of this process may need them; if this one does, they must be. `java` is the one that will carry it, if it is known.
    A `plain` one has our settings, and else is as Spark made it.
    """
    # Workers start the `python3` of PATH unless told otherwise, and that one may lack every dependency.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    packages = {"spark.jars": ",".join(map(str, paths()))} if jars or not missing() else {}
    wanted = settings(os.cpu_count() or 2) | packages | dict(overrides or {})
    wanted = with_one_collector(wanted)
    home = lean_home(wanted)
    if home is not None:
        wanted = with_archive(wanted, home, java)
    return Coming({"spark.app.name": name, **wanted}, home, log, plain=plain)


class Coming:
    """A session on its way."""

    def __init__(self, wanted: Mapping[str, str], home: Path | None, log: Path, *, plain: bool = False) -> None:
        self._wanted, self._home, self._log, self._plain = wanted, home, log, plain
        # Where a worker is this very Python, as it is wherever there is such a home.
        self._python = None if home is None or _runs() else forking(wanted)
        begins = not jvm.is_there() and jvm.may_be_unwanted(wanted.get(JAVA, ""))
        self._jvm = Meanwhile(self._launched) if begins else None

    def there(self) -> SparkSession:
        """The session, once it is there."""
        if not jvm.is_there():
            jvm.taken(self._launched() if self._jvm is None else self._jvm.result())
        runs_already = _runs()
        with at_home(self._home), started_by(self._python):
            session = SparkSession.builder.config(map=dict(self._wanted)).getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        if self._home is not None and not runs_already:
            spare_search(session)
            if not self._plain:
                spare_processes(session)
                spare_code(session)
                spare_traces(session)
        return session

    def given_up(self) -> None:
        """Nobody needs it: a JVM that was begun for it ends."""
        if self._jvm is not None:
            self._jvm.undone(jvm.ended)

    def _launched(self) -> Any:
        conf = SparkConf(loadDefaults=False).setAll(list(self._wanted.items()))
        with at_home(self._home), started_by(self._python):
            return jvm.launched(conf, self._log)


def _runs() -> bool:
    """Whether a Spark runs in this process."""
    return SparkContext._active_spark_context is not None  # noqa: SLF001 - the only place that says so


def with_one_collector(wanted: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The same settings, in which ours gives way to one that was chosen elsewhere: a JVM told of two does not start."""
    elsewhere = [wanted.get("spark.driver.defaultJavaOptions", ""), *(environ.get(each, "") for each in _OF_EVERY_JVM)]
    if not any(map(_COLLECTOR.search, elsewhere)) or JAVA not in wanted:
        return dict(wanted)
    return {**wanted, JAVA: " ".join(wanted[JAVA].replace(SERIAL, "").split())}


def with_archive(wanted: Mapping[str, str], home: Path, java: Java | None = None) -> dict[str, str]:
    """The same settings for a JVM that reads its classes from an archive, or leaves one to the next when it ends.

    Whoever says something of archives keeps what they said.
    """
    said = wanted.get(JAVA, "")
    if "-Xshare" in said or "Archive" in said:
        return dict(wanted)
    try:
        archive = ClassArchive(home, "spark", java or find_java(), class_path(home))
    except SetupError:
        return dict(wanted)
    options = archive.used() or archive.made()
    return {**wanted, JAVA: f"{said} {shlex.join(options)}".strip()} if options else dict(wanted)


def class_path(home: Path) -> str:
    """What Spark's launcher gives to the JVM; the archive holds for this and for no other."""
    jars = home / "jars"
    return os.pathsep.join(map(str, [home / "conf", *jars.glob("slf4j-api-*.jar"), jars / "*"]))


def is_submitted() -> bool:
    """Whether this program was handed to spark-submit, which has started the JVM and knows where the cluster is."""
    return _GATEWAY in os.environ


def submitted_session(overrides: Mapping[str, str] | None = None) -> SparkSession:
    """The session of such a program. What was said to spark-submit goes before our own settings."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    SparkContext._ensure_initialized()  # noqa: SLF001 - or the configuration would not be that of the JVM
    said = dict(SparkConf().getAll())
    builder = SparkSession.builder
    for key, value in (submitted_settings(said) | dict(overrides or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if cores_of(said) is None and _PARTITIONS not in said:
        session.conf.set(_PARTITIONS, str(session.sparkContext.defaultParallelism))
    return session


def submitted_settings(said: Mapping[str, str]) -> dict[str, str]:
    """What a job of ours wants of a cluster, beside what was said."""
    cores = cores_of(said)
    wanted = settings(cores or 1) | OF_RECORDS
    # Executors come one by one: a job that asks too soon how many cores there are would be cut small for life.
    wanted |= dict.fromkeys(_CORES, str(cores)) if cores else {}
    left = (*_OF_THIS_MACHINE, *said, *(() if cores else _CORES))
    return {key: value for key, value in wanted.items() if key not in left}


def cores_of(said: Mapping[str, str]) -> int | None:
    """How many cores the executors have together, as far as that was said."""
    if "spark.cores.max" in said:
        return int(said["spark.cores.max"])
    if "spark.executor.instances" in said:
        return int(said["spark.executor.instances"]) * int(said.get("spark.executor.cores", "1"))
    return None


def require_classes(session: SparkSession, names: Sequence[str]) -> None:
    """What a source needs of the JVM must be there: a session that runs already cannot be given jars."""
    loader = session.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]  # noqa: SLF001 - Spark has no other way
    for name in names:
        try:
            loader.loadClass(name)
        except Py4JJavaError:
            raise SetupError(
                f"this Spark session has no {name.rpartition('.')[2]}",
                hint='set "spark.jars" to ",".join(map(str, strandline.spark.launch.jars.paths())) where the session '
                "is made, give the same to spark-submit --jars, or run without a session",
            ) from None


def require_rocksdb(session: SparkSession) -> None:
    """A user's session is left as it is, so it must already keep state where transformWithState can."""
    key = "spark.sql.streaming.stateStore.providerClass"
    if session.conf.get(key) != ROCKSDB:
        raise SetupError(
            "this Spark session does not keep its state in RocksDB",
            detail=f"{key} is {session.conf.get(key)}",
            hint=f"set it to {ROCKSDB}, or run without a session and Strandline starts its own",
        )
