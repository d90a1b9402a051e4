"""Create and use class data sharing archives of the JVM, which halve the time of a start.

The first program that ends normally writes an archive; later starts load it. An archive must never make a start fail.
The JVM ignores one whose checksums or jars do not match, but crashes on one that was cut off. So a new archive is
tested once, and then renamed to a name that contains its size.
"""

import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.spark.launch.find_java import Java

_MAGIC: Final = 0xF00BABA8.to_bytes(4, "little")
"""First bytes of an archive. The JVM writes them last."""
_KEPT: Final = 2
"""Older archives that stay beside a new one, for environments with other versions; each has 50 to 170 MB."""
_TEST_TIMEOUT_SECONDS: Final = 20
_STALE_AFTER_SECONDS: Final = 86_400
"""A JVM that is killed while it writes an archive leaves a part of it."""
_ALL: Final = "*"

# The JVM's messages about archives do not belong into the log of a service.
_QUIET: Final = "-Xlog:cds*=off"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The class archive of a program's jars, in a folder with others."""

    folder: Path
    name: str
    java: Java
    class_path: str
    """As the JVM gets it: files, folders, and `*` for all jars of a folder."""

    def options_to_use(self) -> list[str]:
        """Return the JVM options that load the archive; none if there is no archive."""
        try:
            found = self._accepted() or self._test_new()
        except OSError:
            return []
        return [] if found is None else _load_options(found)

    def options_to_create(self) -> list[str]:
        """Return the JVM options that write an archive at exit. Each of several JVMs writes its own."""
        try:
            self._remove_old()
            new = self.folder / f"{self._stem}.{os.getpid()}.new"
            return [_QUIET, f"-XX:ArchiveClassesAtExit={new}"] if os.access(self.folder, os.W_OK) else []
        except OSError:
            return []

    @property
    def _stem(self) -> str:
        """Return the archive's name, with a hash of the JVM and the jars for which it is valid."""
        jars = [(str(path), path.stat()) for path in self._jars()]
        # Java's home and not its launcher: one Java can be found by several names.
        facts = [str(self.java.home), self.java.version, *((path, at.st_size, at.st_mtime_ns) for path, at in jars)]
        return f"{self.name}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"

    def _jars(self) -> Iterator[Path]:
        for path in map(Path, self.class_path.split(os.pathsep)):
            if path.name == _ALL:
                yield from sorted(path.parent.glob("*.jar"))
            elif path.suffix == ".jar":
                yield path

    def _accepted(self) -> Path | None:
        """Return the archive that was accepted earlier, if its size is unchanged."""
        found = self.folder.glob(f"{self._stem}-*.jsa")
        return next((file for file in found if file.stem.rpartition("-")[2] == str(file.stat().st_size)), None)

    def _test_new(self) -> Path | None:
        """Accept the first new archive that the JVM starts with, and delete the others."""
        accepted = None
        for new in self.folder.glob(f"{self._stem}.*.new"):
            if _is_complete(new):
                if accepted is None and self._starts_with(new):
                    accepted = new.rename(self.folder / f"{self._stem}-{new.stat().st_size}.jsa")
                else:
                    new.unlink(missing_ok=True)
        return accepted

    def _starts_with(self, new: Path) -> bool:
        # A JVM that crashes writes a report to the current folder.
        reports = ["-XX:-CreateCoredumpOnCrash", f"-XX:ErrorFile={os.devnull}"]
        command = [str(self.java.path), "-Xshare:on", *reports, *_load_options(new), "-cp", self.class_path, "-version"]
        try:
            ran = subprocess.run(command, capture_output=True, check=False, timeout=_TEST_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return ran.returncode == 0

    def _remove_old(self) -> None:
        found = sorted(self.folder.glob(f"{self.name}-*.jsa"), key=lambda file: file.stat().st_mtime)
        for old in found[: max(len(found) - _KEPT, 0)]:
            old.unlink()
        for new in self.folder.glob(f"{self.name}-*.new"):
            if time.time() - new.stat().st_mtime > _STALE_AFTER_SECONDS:
                new.unlink()


def _load_options(file: Path) -> list[str]:
    return [_QUIET, f"-XX:SharedArchiveFile={file}", "-XX:+VerifySharedSpaces"]


def _is_complete(file: Path) -> bool:
    try:
        with file.open("rb") as archive:
            return archive.read(len(_MAGIC)) == _MAGIC
    except FileNotFoundError:
        return False
