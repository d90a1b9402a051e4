"""List every patch of Spark, Hadoop and the JVM: what it changes, what it gains, and what happens without it.

All work is correct without any of them. `STRANDLINE_PATCHES=off` switches all off (see `switch.py`). Each patch that is
off is one line in the log of a job's start, and one row of `strandline doctor`.

The figures come from the decision records. "Not measured alone" means that a record measured it with other changes.
"""

import os
import sys
import zipfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from strandline.errors import SetupError
from strandline.redaction import logger
from strandline.spark.patches.local_files import install_local_files
from strandline.spark.patches.skip_data_source_lookup import skip_data_source_lookup
from strandline.spark.patches.state_codegen import disable_state_codegen
from strandline.spark.patches.switch import VARIABLE, is_on, switched_off
from strandline.spark.patches.topic_blocks import probe_topic_blocks

_log: Final = logger("strandline.patches")


@dataclass(frozen=True, slots=True)
class Patch:
    """One change to Spark, Hadoop or the JVM."""

    name: str
    changes: str
    tried: tuple[str, ...]
    """Versions of Spark that the test suite ran with."""
    gain: str
    without: str
    """What happens where it is off."""
    probe: Callable[[], str]
    """Returns why the patch cannot work on this machine, or an empty text. Needs no running Spark."""
    apply: Callable[[SparkSession], str] | None = None
    """Changes a Spark that has just started; returns why it failed, or an empty text."""

    def why_off(self, spark: SparkSession | None = None) -> str:
        """Return why the patch is off, or an empty text. Given a Spark, it is applied, which needs no probe."""
        if not is_on(self.name):
            return f"switched off by {VARIABLE}"
        return self.probe() if spark is None or self.apply is None else self.apply(spark)


@dataclass(frozen=True, slots=True)
class Reliance:
    """An internal of Spark or Hadoop that Strandline uses without changing it. It cannot be switched off."""

    name: str
    module: str
    tried: tuple[str, ...]
    if_changed: str
    """What happens with a Spark where it differs."""


ANY_SESSION: Final = ("topic_blocks",)
"""Patches that change nothing in Spark itself, and so are applied to sessions that users bring."""
_SPARK: Final = ("4.2.1",)
_ALSO_43: Final = ("4.2.1", "4.3.0")


def _works_here() -> str:
    return ""


def _on_linux() -> str:
    return "" if sys.platform == "linux" else "libraries on this system do not survive a fork"


def _own_spark_home() -> str:
    return "SPARK_HOME names another Spark" if "SPARK_HOME" in os.environ else ""


def _in_jars(jars: str, name: str) -> str:
    """Look for a class in Spark's jars, without starting a JVM."""
    file = f"{name.replace('.', '/')}.class"
    for jar in (Path(pyspark.__file__).parent / "jars").glob(jars):
        with zipfile.ZipFile(jar) as archive:
            if file in archive.namelist():
                return ""
    return f"this Spark has no class {name}"


PATCHES: Final = (
    Patch(
        "jvm_locale",
        "starts the JVM with a UTF-8 locale where the user chose none",
        _ALSO_43,
        "files with names outside ASCII can be read",
        "such files are skipped in the locale C; set LC_ALL=C.UTF-8",
        _works_here,
    ),
    Patch(
        "background_jvm",
        "starts the JVM in a thread while sinks are opened",
        _ALSO_43,
        "0.7 s of a start of 15.5 s, with parallel claims (decision 0030); not measured alone",
        "the JVM starts after the sinks are open",
        _works_here,
    ),
    Patch(
        "slim_home",
        "starts Spark from a SPARK_HOME without pyspark.zip, so that workers import compiled modules",
        _ALSO_43,
        "6 to 9 s of a start of 20 to 25 s, with one kind of worker (decision 0024); not measured alone",
        "workers compile PySpark when they start; no class archive",
        _own_spark_home,
    ),
    Patch(
        "class_archive",
        "lets the JVM load Spark's classes from a class data sharing archive",
        _SPARK,
        "6 s of a start of 20 to 23 s (decision 0026)",
        "the JVM reads classes from 277 jars at each start",
        _own_spark_home,
    ),
    Patch(
        "fork_server",
        "forks Spark's Python processes from one that has imported their modules",
        _ALSO_43,
        "1.6 to 6.8 s of a start of 16 to 25 s; 235 MB of memory of 661 MB (decision 0034)",
        "each Python process imports its modules",
        _on_linux,
    ),
    Patch(
        "worker_gc",
        "freezes imported objects in Python workers with gc.freeze()",
        _ALSO_43,
        "15 to 20 % of the CPU time of Python workers (decision 0022)",
        "each task ends with a collection over all imported modules",
        _works_here,
    ),
    Patch(
        "local_files",
        "replaces Hadoop's chmod processes and its listing of local folders",
        _ALSO_43,
        "27 to 55 ms of a batch of 440 ms (decision 0038); 19 ms of a listing of 38 ms (decision 0045)",
        "ten processes a batch; 70 microseconds a listed file; files whose names are not UTF-8 are skipped silently",
        partial(_in_jars, "hadoop-client-api-*.jar", "org.apache.hadoop.fs.FilterFileSystem"),
        install_local_files,
    ),
    Patch(
        "state_codegen",
        "stops code generation in the JVM threads that serve state",
        _ALSO_43,
        "16 to 56 ms of a batch of 400 ms (decision 0038)",
        "Spark compiles code in every task",
        partial(_in_jars, "spark-catalyst_*.jar", "org.apache.spark.sql.internal.SQLConf$"),
        disable_state_codegen,
    ),
    Patch(
        "source_lookup",
        "tells Spark that no module named pyspark_* is installed",
        _ALSO_43,
        "median 0.27 s of each start; faster in 11 of 12 pairs by turns (decision 0050)",
        "Spark starts a Python process to look for such modules",
        partial(_in_jars, "spark-sql_*.jar", "org.apache.spark.sql.execution.datasources.DataSourceManager$"),
        skip_data_source_lookup,
    ),
    Patch(
        "topic_blocks",
        "reads Kafka topics in packed rows of up to 16 thousand records",
        _SPARK,
        "19 to 54 % more events a CPU second over topics (decision 0048)",
        "each record crosses to Python in a row of its own",
        _works_here,
        probe_topic_blocks,
    ),
)

RELIANCES: Final = (
    Reliance("private attributes of PySpark", "spark/patches/jvm_access.py", _SPARK, "no session starts"),
    Reliance("calls of Hadoop's file systems", "spark/patches/hadoop_files.py", _SPARK, "remote files are not checked"),
    Reliance(
        "offset log, commit log and logs of file sources", "checkpoint/job_folder.py", _SPARK, "a job does not go on"
    ),
    Reliance("the same logs, read for damage", "checkpoint/examine_logs.py", _SPARK, "the check reports damage"),
    Reliance("metadata and schemas of state", "checkpoint/examine_state.py", _SPARK, "the check reports damage"),
    Reliance("changelogs and snapshots of RocksDB", "checkpoint/state_store_files.py", _SPARK, "no check of state"),
    Reliance("checksum files (.crc) of Hadoop", "checkpoint/hadoop_checksums.py", _SPARK, "checksums are not verified"),
    Reliance("the offset log of a restored job", "savepoints/seed_state.py", _SPARK, "a restore fails"),
    Reliance(
        "the hash of partitioning (Murmur3)", "execution/block_addresses.py", _SPARK, "key groups spread unevenly"
    ),
    Reliance("xxhash64 of file names", "spark/tasks/partition_codes.py", _SPARK, "files are named by numbers"),
)


def apply_patches(spark: SparkSession, *, names: Collection[str] | None = None) -> None:
    """Apply these patches, or all, to a Spark that has just started; log each one that is off. Called on the driver."""
    _require_known()
    for patch in PATCHES:
        if names is not None and patch.name not in names:
            continue
        reason = patch.why_off(spark)
        if reason:
            _log.info("patch %s is off: %s; %s", patch.name, reason, patch.without)


def states() -> Iterator[tuple[Patch, str]]:
    """Return each patch with why it is off, or an empty text. Needs no running Spark."""
    for patch in PATCHES:
        yield patch, patch.why_off()


def _require_known() -> None:
    unknown = [name for name in switched_off() if name not in {patch.name for patch in PATCHES}]
    if unknown:
        raise SetupError(
            f"{VARIABLE} names no patch: {unknown[0]}",
            detail=f"the patches are {', '.join(patch.name for patch in PATCHES)}",
            hint=f"set {VARIABLE}=off, or a comma list such as -fork_server,-worker_gc",
        )
