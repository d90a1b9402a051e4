"""Create a virtual environment per peer on first use, in the work folder, with pip."""

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from strandline.errors import SetupError
from strandline.spark.launch.find_java import find_java
from strandline.spark.launch.jars import fetch_jars, jars_folder, pinned

JARS: Final = Path(__file__).with_name("jars.toml")
PINS: Final = Path(__file__).with_name("environments.toml")
PATIENCE: Final = 1_800
"""Time limit for installing packages, in seconds."""


class NotInstalled(Exception):
    """Raised when a peer cannot be installed, with the reason."""


def packages_of(name: str) -> tuple[str, ...]:
    """Return the packages of a peer."""
    return tuple(tomllib.loads(PINS.read_text())[name]["packages"])


def python_of(name: str, work: Path, install: str = "install") -> Path:
    """Return the Python of a peer's environment, created first if incomplete."""
    packages = packages_of(name)
    mark = hashlib.sha256("\n".join([sys.version, *packages]).encode()).hexdigest()[:8]
    home = work / "environments" / f"{name}-{mark}"
    python, whole = home / "bin" / "python", home / "whole"
    if not whole.exists():
        print(f"  installing {', '.join(packages)}", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        _ran([sys.executable, "-m", "venv", str(home)])
        _ran([str(python), "-m", "pip", install, "--quiet", "--disable-pip-version-check", *packages])
        whole.touch()
    return python


def java_of(work: Path) -> list[str]:
    """Return the command that runs a Java source file with its jars."""
    if shutil.which("javac") is None:
        raise NotInstalled("needs a JDK, and there is no javac")
    import pyspark  # noqa: PLC0415 - for its jars

    try:
        fetch_jars(print, jars=pinned(JARS))
    except SetupError as problem:
        raise NotInstalled(str(problem)) from None
    quiet = work / "quiet.properties"
    quiet.parent.mkdir(parents=True, exist_ok=True)
    quiet.write_text("rootLogger.level = error\n")
    spark = Path(next(iter(pyspark.__path__))) / "jars" / "*"
    path = os.pathsep.join([*(str(jars_folder() / jar.file) for jar in pinned(JARS)), str(spark)])
    # Twice Spark's memory, so that memory is not the limit.
    return [str(find_java().path), "-Xmx8g", f"-Dlog4j2.configurationFile={quiet}", "-cp", path]


def command_in_go(module: str, work: Path) -> Path:
    """Return the path of a command that Go builds from a module: `host/path/name@version`."""
    go = shutil.which("go")
    if go is None:
        raise NotInstalled("needs Go, and there is none")
    name, _, version = module.rpartition("/")[2].partition("@")
    home = work / "environments" / f"{name}-{version}"
    command = home / name
    if not command.exists():
        print(f"  building {module}", flush=True)
        _ran([go, "install", module], os.environ | {"GOBIN": str(home)})
    return command


def _ran(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"was not there after {PATIENCE} seconds") from None
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise NotInstalled(f"does not install: {lines[-1][:300] if lines else 'without a word'}")
