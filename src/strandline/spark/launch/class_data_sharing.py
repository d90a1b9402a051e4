"""Class archives of the JVM: made when a program first ends in good order, they halve the time it takes to start again.

An archive can make a start faster, and must not make one fail. The JVM passes over one whose sums or jars do not fit,
but trips over one that was cut off; so an archive is tried once before it is taken, and then goes by a name with its
size.
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
"""What an archive begins with. The JVM writes it last."""
_KEPT: Final = 2
"""So many older archives stay beside a new one, for environments with other versions; each has 50 to 170 MB."""
_TRIED_WITHIN_SECONDS: Final = 20
_GIVEN_UP_AFTER_SECONDS: Final = 86_400
"""A JVM that was killed while it wrote one leaves a part of it."""
_ALL: Final = "*"

# What the JVM has to say of archives is of no use to whoever reads the log of a service.
_QUIET: Final = "-Xlog:cds*=off"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of a program's jars, among others in a folder."""

    folder: Path
    name: str
    java: Java
    class_path: str
    """As the JVM is given it: files, folders, and `*` for all jars of a folder."""

    def used(self) -> list[str]:
        """What makes the JVM use it; nothing if there is none."""
        try:
            found = self._taken() or self._tried()
        except OSError:
            return []
        return [] if found is None else _using(found)

    def made(self) -> list[str]:
        """What makes the JVM leave one behind when it ends. Of several at once, each leaves its own."""
        try:
            self._forget_old()
            new = self.folder / f"{self._stem}.{os.getpid()}.new"
            return [_QUIET, f"-XX:ArchiveClassesAtExit={new}"] if os.access(self.folder, os.W_OK) else []
        except OSError:
            return []

    @property
    def _stem(self) -> str:
        """An archive holds for one JVM and for jars that nobody has touched since."""
        jars = [(str(path), path.stat()) for path in self._jars()]
        # Its home, not its launcher: the same Java is found by several names.
        facts = [str(self.java.home), self.java.version, *((path, at.st_size, at.st_mtime_ns) for path, at in jars)]
        return f"{self.name}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"

    def _jars(self) -> Iterator[Path]:
        for path in map(Path, self.class_path.split(os.pathsep)):
            if path.name == _ALL:
                yield from sorted(path.parent.glob("*.jar"))
            elif path.suffix == ".jar":
                yield path

    def _taken(self) -> Path | None:
        """The archive that was taken before, if it is still as long as it was."""
        found = self.folder.glob(f"{self._stem}-*.jsa")
        return next((file for file in found if file.stem.rpartition("-")[2] == str(file.stat().st_size)), None)

    def _tried(self) -> Path | None:
        """The first new archive that the JVM starts with, under the name it is taken by; the others go."""
        taken = None
        for new in self.folder.glob(f"{self._stem}.*.new"):
            if _is_finished(new):
                if taken is None and self._starts_with(new):
                    taken = new.rename(self.folder / f"{self._stem}-{new.stat().st_size}.jsa")
                else:
                    new.unlink(missing_ok=True)
        return taken

    def _starts_with(self, new: Path) -> bool:
        # A JVM that trips writes down where, in the folder it was started in.
        trips = ["-XX:-CreateCoredumpOnCrash", f"-XX:ErrorFile={os.devnull}"]
        command = [str(self.java.path), "-Xshare:on", *trips, *_using(new), "-cp", self.class_path, "-version"]
        try:
            ran = subprocess.run(command, capture_output=True, check=False, timeout=_TRIED_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return ran.returncode == 0

    def _forget_old(self) -> None:
        found = sorted(self.folder.glob(f"{self.name}-*.jsa"), key=lambda file: file.stat().st_mtime)
        for old in found[: max(len(found) - _KEPT, 0)]:
            old.unlink()
        for new in self.folder.glob(f"{self.name}-*.new"):
            if time.time() - new.stat().st_mtime > _GIVEN_UP_AFTER_SECONDS:
                new.unlink()


def _using(file: Path) -> list[str]:
    return [_QUIET, f"-XX:SharedArchiveFile={file}", "-XX:+VerifySharedSpaces"]


def _is_finished(file: Path) -> bool:
    try:
        with file.open("rb") as archive:
            return archive.read(len(_MAGIC)) == _MAGIC
    except FileNotFoundError:
        return False
