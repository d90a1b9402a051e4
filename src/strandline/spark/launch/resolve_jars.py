"""Resolve JVM packages with Spark's resolver, in a separate process: coordinates in, a line of JSON for each out.

    python -m strandline.spark.launch.resolve_jars FOLDER group:artifact:version ...

Ivy's files go to FOLDER, which is also the JVM's user.home: a local Maven repository with only the POM of a package
makes the resolver fail, although the package exists.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


def resolve(folder: Path, coordinates: Sequence[str]) -> Iterator[dict[str, str]]:
    """Resolve each package without its dependencies. The pinned list is complete."""
    session = _session(folder)
    try:
        for package in coordinates:
            yield {"coordinates": package} | _answer(session, folder, package)
    finally:
        session.stop()


def _session(folder: Path) -> SparkSession:
    builder = SparkSession.builder.master("local[1]").appName("strandline jars")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Duser.home={folder}",
        "spark.jars.ivy": str(folder / "ivy"),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _answer(session: SparkSession, folder: Path, package: str) -> dict[str, str]:
    try:
        session.sql(f"ADD JAR 'ivy://{package}?transitive=false'")
    except Py4JJavaError as error:
        return {"error": _first_words(str(error.java_exception.getMessage()))}
    group, artifact, version = package.split(":")
    return {"file": str(folder / "ivy" / "jars" / f"{group}_{artifact}-{version}.jar")}


def _first_words(message: str) -> str:
    return message.strip().split("\n")[0].strip("[]")


def main(arguments: Sequence[str]) -> None:
    folder, *coordinates = arguments
    for answer in resolve(Path(folder), coordinates):
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
