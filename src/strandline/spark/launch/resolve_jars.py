"""Resolve JVM packages with Spark's resolver (Ivy) in a process of its own: coordinates in, one line of JSON each out.

    python -m strandline.spark.launch.resolve_jars FOLDER group:artifact:version ...

It calls the function behind `ADD JAR ivy://…` in a JVM without a SparkContext, whose start takes longer than the
downloads. Ivy's files go to FOLDER, which is also the home that the JVM sees: with a local Maven repository that holds
only the description of a package, Ivy stops although the package exists.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway


def resolve(folder: Path, coordinates: Sequence[str]) -> Iterator[dict[str, str]]:
    """Resolve each package without its dependencies; the list of jars is complete by itself."""
    gateway: Any = launch_gateway(_conf(folder))  # type: ignore[no-untyped-call]
    try:
        for package in coordinates:
            yield {"coordinates": package} | _answer(gateway.jvm, folder, package)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # this ends the JVM
        gateway.proc.wait()


def _conf(folder: Path) -> SparkConf:
    settings = {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": f"-Duser.home={folder} -XX:TieredStopAtLevel=1",
        "spark.jars.ivy": str(folder / "ivy"),
    }
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


def _answer(jvm: Any, folder: Path, package: str) -> dict[str, str]:
    try:
        address = jvm.java.net.URI(f"ivy://{package}?transitive=false")
        jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(address)
    except Py4JJavaError as error:
        return {"error": _first_line(str(error.java_exception.getMessage()))}
    group, artifact, version = package.split(":")
    return {"file": str(folder / "ivy" / "jars" / f"{group}_{artifact}-{version}.jar")}


def _first_line(message: str) -> str:
    return message.strip().split("\n")[0].strip("[]")


def main(arguments: Sequence[str]) -> None:
    folder, *coordinates = arguments
    for answer in resolve(Path(folder), coordinates):
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
