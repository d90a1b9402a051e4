"""Fetch the pinned JVM packages once, with Spark's resolver, and keep only files with the pinned hash.

The resolver runs in a process of its own (resolve_jars.py), so that it disturbs no session and its log stays hidden.
Standard library only: `scripts/prepare.py` loads this before any dependency is installed.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from strandline.errors import SetupError
from strandline.spark.launch.find_java import find_java

FETCH = "python -m strandline.spark.launch.jars"

OURS = Path(__file__).parent.with_name("patches") / "java" / "topic-blocks.jar"
"""The jar in this package, for sessions that have the others."""
_PINS = Path(__file__).with_name("jars.toml")
_RESOLVER = (sys.executable, "-m", "strandline.spark.launch.resolve_jars")
_TIMEOUT_SECONDS = 600
_BUILT_FOR = "4.2"
"""The minor version of Spark that the packages are built for."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One JVM package: its coordinates and the hash of its content."""

    name: str
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    def matches(self, file: Path) -> bool:
        """Return True if the file exists and has the pinned hash."""
        try:
            with file.open("rb") as content:
                return hashlib.file_digest(content, "sha256").hexdigest() == self.sha256
        except OSError:
            return False


def pinned(pins: Path = _PINS) -> tuple[Jar, ...]:
    """Read the list of all JVM packages that Strandline uses."""
    entries = tomllib.loads(pins.read_text(encoding="utf-8"))["jar"]
    return tuple(_jar(entry) for entry in entries)


def _jar(entry: Mapping[str, str]) -> Jar:
    group, artifact, version = entry["coordinates"].split(":")
    return Jar(entry["name"], group, artifact, version, entry["sha256"])


def home() -> Path:
    """Return the folder for fetched files: STRANDLINE_HOME, or a folder in the user's cache."""
    chosen = os.environ.get("STRANDLINE_HOME")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "strandline"


def jars_folder() -> Path:
    return home() / "jars"


def missing(jars: Sequence[Jar] | None = None) -> tuple[Jar, ...]:
    """Return the packages whose file is absent or has another hash."""
    folder = jars_folder()
    return tuple(jar for jar in (pinned() if jars is None else jars) if not jar.matches(folder / jar.file))


def are_for_this_spark() -> bool:
    """Whether the packages were built for the installed PySpark."""
    return version("pyspark").startswith(f"{_BUILT_FOR}.")


def paths() -> tuple[Path, ...]:
    """Return the files for `spark.jars`; raise SetupError if one is absent, damaged, or for another Spark."""
    if not are_for_this_spark():
        raise SetupError(
            f"there are no Kafka jars for PySpark {version('pyspark')}",
            detail=f"Strandline's are built for Spark {_BUILT_FOR}",
            hint='type: pip install "pyspark==4.2.1"',
        )
    folder = jars_folder()
    if absent := missing():
        jar = absent[0]
        fault = "is damaged" if (folder / jar.file).exists() else "is missing"
        raise SetupError(f"the jar {jar.coordinates} {fault}", detail=f"in {folder}", hint=f"type: {FETCH}")
    return (*(folder / jar.file for jar in pinned()), OURS)


def fetch_jars(
    show: Callable[[str], None] = lambda _: None,
    *,
    jars: Sequence[Jar] | None = None,
    resolver: Sequence[str] = _RESOLVER,
) -> None:
    """Fetch the packages that are missing. Each one is kept as soon as its hash was checked."""
    wanted = missing(jars)
    if not wanted:
        return
    folder = jars_folder()
    _make(folder)
    by_coordinates = {jar.coordinates: jar for jar in wanted}
    with tempfile.TemporaryDirectory(prefix="strandline-jars-", ignore_cleanup_errors=True) as scratch:
        for answer in _resolve(resolver, Path(scratch), list(by_coordinates)):
            jar = by_coordinates.pop(answer["coordinates"])
            _keep(jar, _fetched(jar, answer), folder)
            show(f"{jar.name} {jar.version}")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"the jars cannot be kept in {folder}",
            detail=str(error.strerror or error),
            hint="set STRANDLINE_HOME to a folder you can write to",
        ) from error


def _resolve(resolver: Sequence[str], scratch: Path, coordinates: Sequence[str]) -> Iterator[dict[str, str]]:
    """Run the resolver and yield its answer for each package. The JVM's log goes to a file that is read on failure."""
    log = scratch / "resolver.log"
    answered = 0
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [*resolver, str(scratch), *coordinates], stdout=subprocess.PIPE, stderr=errors, text=True, env=_environ()
        ) as process,
    ):
        alarm = threading.Timer(_TIMEOUT_SECONDS, process.kill)
        alarm.start()
        try:
            for line in process.stdout or ():
                if line.startswith("{"):
                    answered += 1
                    yield json.loads(line)
        finally:
            alarm.cancel()
    if answered < len(coordinates):
        raise SetupError(
            f"Spark's resolver stopped before it answered for {coordinates[answered]}",
            detail=_last_line(log),
            hint="run `strandline doctor`, then try again",
        )


def _environ() -> dict[str, str]:
    """Use the JVM of the installed pyspark, not of another Spark that the shell is set up for."""
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    return {**environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")


def _fetched(jar: Jar, answer: dict[str, str]) -> Path:
    if "error" in answer:
        raise SetupError(
            f"the jar {jar.coordinates} could not be fetched",
            detail=answer["error"],
            hint="check the network or the proxy, then try again",
        )
    file = Path(answer["file"])
    if not jar.matches(file):
        raise SetupError(
            f"the jar {jar.coordinates} is not the pinned one, so it was thrown away",
            detail=f"its sha256 is not {jar.sha256}",
            hint=f"check where your packages come from; the pin is in {_PINS.name}",
        )
    return file


def _keep(jar: Jar, file: Path, folder: Path) -> None:
    # Written under another name, then renamed: a concurrent start sees the whole jar or none.
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{jar.file}.")
    os.close(handle)
    try:
        shutil.copyfile(file, temporary)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(folder / jar.file)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise SetupError(f"the jar {jar.file} cannot be kept in {folder}", detail=str(error.strerror)) from error


def main() -> int:
    """Fetch all jars. Prints a line for each, or one line on failure."""
    try:
        fetch_jars(lambda line: print(line, flush=True))
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
