"""Hadoop starts a process for each file that it writes to a local disk, to set permissions. Here the system is asked.

A batch writes a file for each of Spark's three logs and for every partition of its state, each with a second one for
its checksums: so ten processes, most of them one after the other. There is no setting for it, other than a native
library that does not come with Spark. And a folder that is read is listed with every batch, 70 microseconds for each
file that it holds, most of them to take apart names. Hadoop's own class for such files is kept, all but these two
methods, which takes a class of Java: `java/LocalFiles.java`, compiled by `scripts/java_classes.py`. Only a Spark of our
own is told.
"""

from importlib.resources import as_file, files
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

NAME: Final = "LocalFiles"
_WRAPPER: Final = "org.apache.hadoop.fs.FilterFileSystem"
"""Beside a file it keeps checksums, and writes both with another file system, which is in its field `fs`."""


def spare_processes(spark: SparkSession) -> None:
    """Files are written without a process; where that cannot be said, with one, as always."""
    context = spark.sparkContext
    jvm, conf = context._jvm, context._jsc.hadoopConfiguration()  # noqa: SLF001 - Spark has no other way
    try:
        local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(conf)  # type: ignore[union-attr]
        if local.getRaw().getClass().getSimpleName() == NAME:
            return
        with as_file(files(__package__) / "java") as folder:
            places = context._gateway.new_array(jvm.java.net.URL, 1)  # type: ignore[union-attr] # noqa: SLF001
            places[0] = jvm.java.net.URL(f"{folder.as_uri()}/")  # type: ignore[union-attr]
            parent = local.getClass().getClassLoader()
            loader = jvm.java.net.URLClassLoader(places, parent)  # type: ignore[union-attr]
            ours = loader.loadClass(NAME).newInstance()
        ours.initialize(local.getUri(), conf)
        field = jvm.java.lang.Class.forName(_WRAPPER).getDeclaredField("fs")  # type: ignore[union-attr]
        field.setAccessible(True)
        field.set(local, ours)
    except (Py4JError, OSError, TypeError):
        return
