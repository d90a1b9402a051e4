"""Replace two methods of Hadoop's local file system: one that starts processes, one that is slow.

Hadoop starts `chmod` for each file that it writes to a local disk. The only setting against it needs a native library
that Spark does not ship. A batch writes one file for each of Spark's three logs and for each partition of state, each
with a file of checksums: ten processes, most of them one after the other (decision 0038). Listing a folder costs 70
microseconds a file with every batch, most of it to parse names (decision 0045).

The class is `java/LocalFiles.java`, compiled by `scripts/java_classes.py`. It extends Hadoop's own class, and is used
only in a Spark that Strandline starts.
"""

from importlib.resources import as_file, files
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from strandline.spark.patches.jvm_access import first_line, hadoop_configuration, jvm_of, new_array

NAME: Final = "LocalFiles"
_WRAPPER: Final = "org.apache.hadoop.fs.FilterFileSystem"
"""Keeps checksums beside each file; its field `fs` is the file system that writes both."""


def install_local_files(spark: SparkSession) -> str:
    """Make Hadoop write local files with `LocalFiles`; returns why it failed, or an empty text."""
    jvm, conf = jvm_of(spark), hadoop_configuration(spark)
    try:
        local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(conf)
        if local.getRaw().getClass().getSimpleName() == NAME:
            return ""
        with as_file(files(__package__) / "java") as folder:
            places = new_array(spark, jvm.java.net.URL, 1)
            places[0] = jvm.java.net.URL(f"{folder.as_uri()}/")
            loader = jvm.java.net.URLClassLoader(places, local.getClass().getClassLoader())
            replacement = loader.loadClass(NAME).newInstance()
        replacement.initialize(local.getUri(), conf)
        field = jvm.java.lang.Class.forName(_WRAPPER).getDeclaredField("fs")
        field.setAccessible(True)
        field.set(local, replacement)
    except (Py4JError, OSError, TypeError) as problem:
        return first_line(problem)
    return ""
