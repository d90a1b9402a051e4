"""Find a Java that can run Spark, or the command that installs one.

Plain Python only: `scripts/prepare.py` loads this before any dependency is installed.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from strandline.errors import SetupError
from strandline.spark.launch.package_manager import find_manager, java_line

OLDEST = 17

USUAL_PLACES = (
    "/usr/lib/jvm/*/bin/java",
    "/usr/java/*/bin/java",
    "/opt/java/*/bin/java",
    "/opt/jdk*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
    "/opt/homebrew/opt/openjdk*/bin/java",
    "/usr/local/opt/openjdk*/bin/java",
    "~/.sdkman/candidates/java/*/bin/java",
)

_ANSWER_WITHIN_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Java:
    """An installed Java: its launcher, its version and its home."""

    path: Path
    version: str
    home: Path

    @property
    def major(self) -> int:
        """Return the major version: 17 for 17.0.15, 8 for 1.8.0_392 (the format before 9)."""
        numbers = [int(part) for part in re.findall(r"\d+", self.version)]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]

    @property
    def is_recent(self) -> bool:
        return self.major >= OLDEST


def find_java(environ: Mapping[str, str] = os.environ, places: Sequence[str] = USUAL_PLACES) -> Java:
    """Return the first Java recent enough for Spark: from JAVA_HOME, then PATH, then the usual places."""
    answers: dict[Path, Java | None] = {}
    for path in _launchers(environ, places):
        java = answers[path] = ask(path)
        if java is not None and java.is_recent:
            return java
    raise _not_found(environ, answers)


def ask(path: Path) -> Java | None:
    """Ask a launcher for its version and home; None if it does not start or is not Java."""
    command = [str(path), "-XshowSettings:properties", "-version"]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_ANSWER_WITHIN_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    output = ran.stderr + ran.stdout
    version = re.search(r'version "(\d[^"]*)"', output)
    if ran.returncode != 0 or version is None:
        return None
    # A launcher may be a shim in another folder, so the home that Java reports comes first.
    home = re.search(r"^\s*java\.home = (.+)$", output, re.MULTILINE)
    return Java(path, version[1], Path(home[1].strip()) if home else path.resolve().parent.parent)


def _launchers(environ: Mapping[str, str], places: Sequence[str]) -> Iterator[Path]:
    home = environ.get("JAVA_HOME")
    if home and (launcher := Path(home, "bin", "java")).exists():
        yield launcher
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield Path(on_path)
    for place in places:
        root, pattern = _split(Path(place).expanduser())
        yield from sorted(root.glob(pattern))


def _split(place: Path) -> tuple[Path, str]:
    """Split a glob into the folder above the first star and the pattern below."""
    parts = place.parts
    first_star = next(index for index, part in enumerate(parts) if "*" in part)
    return Path(*parts[:first_star]), str(Path(*parts[first_star:]))


def _not_found(environ: Mapping[str, str], answers: Mapping[Path, Java | None]) -> SetupError:
    hint = java_line(find_manager())
    old = [java for java in answers.values() if java is not None]
    if old:
        newest = max(old, key=lambda java: java.major)
        return SetupError(
            f"Java {newest.version} is too old: Spark needs {OLDEST} or newer", detail=f"found {newest.path}", hint=hint
        )
    if answers:
        return SetupError(
            "Java is installed but does not start",
            detail="no answer to -version: " + ", ".join(str(path) for path in answers),
            hint=hint,
        )
    home = environ.get("JAVA_HOME")
    return SetupError(
        f"Java was not found: Spark needs version {OLDEST} or newer",
        detail=f"no bin/java in JAVA_HOME={home}, none on PATH" if home else "JAVA_HOME is not set, none on PATH",
        hint=hint,
    )
