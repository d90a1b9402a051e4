"""Look at files through Hadoop, for addresses that only the JVM can read. PySpark has no public API for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from strandline.ports.remote_files import FileStatus, provide
from strandline.spark.patches.jvm_access import hadoop_configuration, jvm_of


@dataclass(frozen=True, slots=True)
class HadoopFiles:
    """The file systems that this Spark can reach."""

    spark: SparkSession

    def scheme(self, uri: str) -> str:
        """Return the scheme of the file system that holds this path: `file`, `hdfs`, `s3a`."""
        return str(self._open(uri)[1].getScheme())

    def modified(self, uri: str) -> int | None:
        """Return the modification time in milliseconds; None if the file does not exist."""
        path, system = self._open(uri)
        return int(system.getFileStatus(path).getModificationTime()) if system.exists(path) else None

    def matching(self, pattern: str) -> Iterator[FileStatus]:
        """Return the files that match a glob pattern."""
        path, system = self._open(pattern)
        for status in system.globStatus(path) or ():
            if status.isFile():
                where, name = str(status.getPath().toUri().toString()), str(status.getPath().getName())
                yield FileStatus(where, name, int(status.getLen()), int(status.getModificationTime()))

    def _open(self, uri: str) -> tuple[Any, Any]:
        path = jvm_of(self.spark).org.apache.hadoop.fs.Path(uri)
        return path, path.getFileSystem(hadoop_configuration(self.spark))


provide(HadoopFiles)
