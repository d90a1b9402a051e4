"""Configure and start the Spark session of a job, embedded or submitted. Each setting stands here with its reason."""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf
from pyspark.sql import SparkSession

import strandline.spark.patches.hadoop_files  # noqa: F401 - registers how connectors look at remote files
from strandline.errors import InvalidArgument, SetupError, Unsupported
from strandline.spark.error_messages import silence_query_context_logs
from strandline.spark.launch.background import BackgroundTask
from strandline.spark.launch.class_data_sharing import ClassArchive
from strandline.spark.launch.find_java import Java, find_java
from strandline.spark.launch.fork_launcher import forking_python, with_python
from strandline.spark.launch.jars import are_for_this_spark, missing, paths
from strandline.spark.launch.jvm import can_start_early, end_jvm, launch_jvm, use_jvm
from strandline.spark.launch.private_folder import private_settings
from strandline.spark.launch.slim_spark_home import slim_home, with_spark_home, workers_run_this_python
from strandline.spark.patches.jvm_access import connect_to_submitted_jvm, has_context, has_jvm, loaded_class
from strandline.spark.patches.switch import VARIABLE, is_on
from strandline.spark.patches.table import ANY_SESSION, apply_patches

FILES: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

MOST_ROWS: Final = 200_000
BYTES_PER_BATCH: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS_PER_BATCH: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
OF_RECORDS: Final = {BYTES_PER_BATCH: str(64 * 2**20)}
"""Limit of Arrow batches where raw records cross to Python. An Arrow batch of more than 2 GB would end the job."""
_LARGEST_COLUMN: Final = 2**31 - 1
"""Bytes that one column of an Arrow batch can hold."""
_FEWEST_ROWS: Final = 500
"""Arrow batches of fewer records cost more than a check of the size with every record."""


def of_records(longest: int | None) -> dict[str, str]:
    """Limit Arrow batches of raw records: by number if the longest record is known, else by bytes.

    With a limit in bytes Spark checks the size with every record, which takes a third of its time for one.
    """
    many = 0 if longest is None else _LARGEST_COLUMN // max(longest, 1)
    return {ROWS_PER_BATCH: str(min(many, MOST_ROWS))} if many >= _FEWEST_ROWS else dict(OF_RECORDS)


_EMBEDDED_ONLY: Final = (
    "spark.master", "spark.driver.bindAddress", "spark.driver.host", "spark.ui.enabled", "spark.broadcast.compress",
    "spark.broadcast.blockSize", "spark.sql.sources.ignoreDataLocality",
)  # fmt: skip
"""Settings that hold for a Spark inside this process, not for a cluster."""
_MASKED_OPTIONS: Final = "(?i)secret|password|passphrase|token|credential|jaas|access[.]?key|account[.]?key|api[.]?key"
"""Names of options whose values Spark masks."""
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_CORES: Final = ("spark.default.parallelism", _PARTITIONS)

JAVA: Final = "spark.driver.extraJavaOptions"
SERIAL: Final = "-XX:+UseSerialGC"
ONE_LOG: Final = "-Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.BasicContextSelector"
"""Use one logger context. Log4j's default walks the stack to find the context of the caller's class loader."""
WITHOUT_ROWS: Final = {
    JAVA: f"-XX:TieredStopAtLevel=1 {SERIAL} {ONE_LOG}",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings where no row passes through Spark: it only plans, shuffles and keeps state. The JVM's second compiler would
cost a quarter of a job's CPU time for minutes, more than it saves. The serial collector grows the heap only when live
data needs it; G1 grows it when it falls behind. The few blocks that pass are not worth generated code, which Spark
would compile in every task."""
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC\b")
_OPTIONS_OF_EVERY_JVM: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def settings(cores: int) -> dict[str, str]:
    """Return the settings of every session that Strandline starts."""
    state = "spark.sql.streaming.stateStore"
    switch = {f"spark.executorEnv.{VARIABLE}": os.environ[VARIABLE]} if VARIABLE in os.environ else {}
    return {
        # Threads, and attempts of a task. With one attempt, the death of a Python worker ends the query.
        "spark.master": f"local[{cores},4]",
        # transformWithState needs RocksDB. With changelogs, a commit writes only what changed.
        f"{state}.providerClass": ROCKSDB,
        f"{state}.rocksdb.changelogCheckpointing.enabled": "true",
        # Counting rows costs a read for each write; the kernel counts blocks.
        f"{state}.rocksdb.trackTotalNumberOfRows": "false",
        f"{state}.rocksdb.boundedMemoryUsage": "true",
        # Each partition has a RocksDB and a Python worker. More of them than cores only wait.
        "spark.sql.shuffle.partitions": str(cores),
        # Rows cross to Python in large Arrow batches.
        ROWS_PER_BATCH: str(MOST_ROWS),
        # Below the largest number, Spark checks the size of an Arrow batch with every row. Columns of numbers need no
        # check; records do (OF_RECORDS).
        BYTES_PER_BATCH: str(_LARGEST_COLUMN),
        # Spark compacts the log of a file source now and then, and keeps replaced files for ten minutes. It lists all
        # of them with every batch.
        "spark.sql.streaming.fileSource.log.cleanupDelay": "1m",
        # Spark packs files into tasks as if each had so many bytes more. With the default of 4 MB, a thousand small
        # files are 31 tasks, each with a call of Python.
        "spark.sql.files.openCostInBytes": "256k",
        # Where records cross one by one, Spark keeps a consumer for each partition of a topic. Of more than 64, the
        # default, it would close and open some in every batch.
        "spark.kafka.consumer.cache.capacity": "2048",
        # Compacting reads and writes an entry for every file ever seen. The default is every tenth batch.
        "spark.sql.streaming.fileSource.log.compactInterval": "100",
        # The default manager starts a process for each log entry on a local disk, to ask about links.
        "spark.sql.streaming.checkpointFileManagerClass": FILES,
        # A plan of several steps has more classes than the 100 of the default cache, and would compile in every batch.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # The defaults, set again for a session whose last job used WITHOUT_ROWS.
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        # An idle job asks its sources for data. Every 10 ms, the default, takes half a core.
        "spark.sql.streaming.pollingDelay": "50ms",
        # State calls are round trips; a Unix socket makes them shorter.
        "spark.python.unix.domain.socket.enabled": "true",
        # Spark sets this for functions over Arrow and not for stateful ones, and keeps separate workers. Off, one
        # worker serves both: half as many processes, each with its modules loaded once.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        # On small frames a thread pool costs more than it gains.
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        # Keep freed memory for the next batch. Polars' allocator returns it after half a second by default; to get it
        # back takes a quarter of a worker's time.
        "spark.executorEnv._RJEM_MALLOC_CONF": "background_thread:false,dirty_decay_ms:60000,muzzy_decay_ms:60000",
        # Timestamps are instants.
        "spark.sql.session.timeZone": "UTC",
        # Listen on this machine only, and serve nothing that the user did not ask for.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        # Spark shows options of sources in plans, in its log and in its UI; those of Kafka hold passwords.
        "spark.redaction.regex": _MASKED_OPTIONS,
        "spark.sql.redaction.options.regex": f"{_MASKED_OPTIONS}|(?i)url",
        # A batch broadcasts four values that never leave the process.
        "spark.broadcast.compress": "false",
        # The default allocates 4 MB for a few thousand bytes: a third of the garbage of a batch.
        "spark.broadcast.blockSize": "256k",
        # All files are on this machine; do not look up the location of each.
        "spark.sql.sources.ignoreDataLocality": "true",
        "spark.ui.showConsoleProgress": "false",
        **switch,
    }


def start_session(
    name: str, *, log: Path, overrides: Mapping[str, str] | None = None, jars: bool = False, plain: bool = False
) -> SparkSession:
    """Start an embedded Spark in this process and return its session."""
    return begin_session(name, log=log, overrides=overrides, jars=jars, plain=plain).wait()


def begin_session(
    name: str,
    *,
    log: Path,
    overrides: Mapping[str, str] | None = None,
    jars: bool = False,
    java: Java | None = None,
    plain: bool = False,
) -> "StartingSession":
    """Start the JVM in the background; `wait()` returns the session, `cancel()` ends the JVM.

    The JVM's output goes to `log`. Strandline's jars are included wherever they are on this machine, because a running
    session cannot be given jars and the next job may need them; with `jars` they must be there. `java` is the Java to
    use, if it is known. A `plain` session has these settings, and no patch that changes a running Spark.
    """
    silence_query_context_logs()
    # By default workers start the `python3` of PATH, which may lack every dependency.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    packages = {"spark.jars": ",".join(map(str, paths()))} if jars or (are_for_this_spark() and not missing()) else {}
    wanted = settings(os.cpu_count() or 2) | packages | dict(overrides or {})
    wanted = with_one_collector(wanted)
    wanted |= private_settings(wanted)
    local = workers_run_this_python(wanted)
    home = slim_home() if local else None
    if home is not None:
        wanted = with_archive(wanted, home, java)
    return StartingSession({"spark.app.name": name, **wanted}, home, log, local=local, plain=plain)


class StartingSession:
    """An embedded Spark whose JVM may be starting in the background."""

    def __init__(
        self, wanted: Mapping[str, str], home: Path | None, log: Path, *, local: bool, plain: bool = False
    ) -> None:
        self._wanted, self._home, self._log, self._local, self._plain = wanted, home, log, local, plain
        self._python = forking_python(wanted) if local and not has_context() else None
        early = not has_jvm() and can_start_early(wanted.get(JAVA, "")) and is_on("background_jvm")
        self._jvm = BackgroundTask(self._launch) if early else None

    def wait(self) -> SparkSession:
        """Return the session once Spark is running."""
        if not has_jvm():
            use_jvm(self._launch() if self._jvm is None else self._jvm.result())
        is_new = not has_context()
        with with_spark_home(self._home), with_python(self._python):
            session = SparkSession.builder.config(map=dict(self._wanted)).getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        all_patches = self._local and is_new and not self._plain
        apply_patches(session, names=None if all_patches else ANY_SESSION)
        return session

    def cancel(self) -> None:
        """End the JVM that was started in the background; the session is not needed."""
        if self._jvm is not None:
            self._jvm.discard(end_jvm)

    def _launch(self) -> Any:
        conf = SparkConf(loadDefaults=False).setAll(list(self._wanted.items()))
        with with_spark_home(self._home), with_python(self._python):
            return launch_jvm(conf, self._log)


def with_one_collector(wanted: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Drop Strandline's choice of a garbage collector if another is set elsewhere: a JVM with two does not start."""
    elsewhere = [
        wanted.get("spark.driver.defaultJavaOptions", ""), *(environ.get(each, "") for each in _OPTIONS_OF_EVERY_JVM)
    ]  # fmt: skip
    if not any(map(_COLLECTOR.search, elsewhere)) or JAVA not in wanted:
        return dict(wanted)
    return {**wanted, JAVA: " ".join(wanted[JAVA].replace(SERIAL, "").split())}


def with_archive(wanted: Mapping[str, str], home: Path, java: Java | None = None) -> dict[str, str]:
    """Make the JVM load classes from an archive, or write one at its end for the next start.

    Options that the user set for archives stay.
    """
    given = wanted.get(JAVA, "")
    if "-Xshare" in given or "Archive" in given or not is_on("class_archive"):
        return dict(wanted)
    try:
        archive = ClassArchive(home, "spark", java or find_java(), class_path(home))
    except SetupError:
        return dict(wanted)
    options = archive.options_to_use() or archive.options_to_create()
    return {**wanted, JAVA: f"{given} {shlex.join(options)}".strip()} if options else dict(wanted)


def class_path(home: Path) -> str:
    """Return the class path that Spark's launcher gives to the JVM. An archive is valid for this path only."""
    jars = home / "jars"
    return os.pathsep.join(map(str, [home / "conf", *jars.glob("slf4j-api-*.jar"), jars / "*"]))


def is_submitted() -> bool:
    """Whether spark-submit started this program; then it has started the JVM and knows the cluster."""
    return _GATEWAY in os.environ


def submitted_session(overrides: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session of a submitted program. Options of spark-submit take precedence over Strandline's settings."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    connect_to_submitted_jvm()
    given = dict(SparkConf().getAll())
    builder = SparkSession.builder
    for key, value in (submitted_settings(given) | dict(overrides or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if cores_of(given) is None and _PARTITIONS not in given:
        session.conf.set(_PARTITIONS, str(session.sparkContext.defaultParallelism))
    return session


def submitted_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a cluster, without those that spark-submit was given."""
    cores = cores_of(given)
    wanted = settings(cores or 1) | OF_RECORDS
    # Executors register one by one. A job that asks for the number of cores too early would stay too small.
    wanted |= dict.fromkeys(_CORES, str(cores)) if cores else {}
    left_out = (*_EMBEDDED_ONLY, *given, *(() if cores else _CORES))
    return {key: value for key, value in wanted.items() if key not in left_out}


def cores_of(given: Mapping[str, str]) -> int | None:
    """Return the number of cores of all executors, if the configuration fixes it."""
    if "spark.cores.max" in given:
        return int(given["spark.cores.max"])
    if "spark.executor.instances" in given:
        return int(given["spark.executor.instances"]) * int(given.get("spark.executor.cores", "1"))
    return None


def require_classes(session: SparkSession, names: Sequence[str]) -> None:
    """Raise if the session lacks a class that a source needs: a running session cannot be given jars."""
    for name in names:
        if loaded_class(session, name) is None:
            raise SetupError(
                f"this Spark session has no {name.rpartition('.')[2]}",
                hint='set "spark.jars" to ",".join(map(str, strandline.spark.launch.jars.paths())) where the session '
                "is made, give the same to spark-submit --jars, or run without a session",
            )


def require_session(session: Any) -> SparkSession:
    """Return a user's session; raise if it is none, or one of Spark Connect, which has no access to the JVM."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise Unsupported(
            "a Spark Connect session cannot run a pipeline",
            detail="Strandline needs the JVM of the driver, which Spark Connect does not reach",
            hint="run the program on the cluster with spark-submit, or without a session and Strandline starts its own",
        )
    if not isinstance(session, SparkSession):
        raise InvalidArgument(
            f"a value of type {type(session).__name__} is no Spark session",
            hint="give spark=SparkSession…getOrCreate(), or leave it out and Strandline starts its own",
        )
    return session


def require_rocksdb(session: SparkSession) -> None:
    """Raise if a user's session keeps state elsewhere than in RocksDB, which transformWithState needs."""
    key = "spark.sql.streaming.stateStore.providerClass"
    if session.conf.get(key) != ROCKSDB:
        raise SetupError(
            "this Spark session does not keep its state in RocksDB",
            detail=f"{key} is {session.conf.get(key)}",
            hint=f"set it to {ROCKSDB}, or run without a session and Strandline starts its own",
        )
