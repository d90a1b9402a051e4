"""Class archives of the JVM: made when a program first ends in good order, they halve the time it takes to start again.

An archive can make a start faster, and must not make one fail. The JVM passes over one whose sums or jars do not fit,
but trips over one that was cut off; so an archive is tried once before it is taken, and then goes by a name with its
size.
"""

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.spark.java import Java

_MAGIC: Final = 0xF00BABA8.to_bytes(4, "little")
"""What an archive begins with. The JVM writes it last."""
_KEPT: Final = 2
"""So many older archives stay beside a new one, for environments with other versions; each has 50 MB."""
_TRIED_WITHIN_SECONDS: Final = 20

# What the JVM has to say of archives is of no use to whoever reads the log of a service.
_QUIET: Final = "-Xlog:cds*=off"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of a program's jars, among others in a folder."""

    folder: Path
    name: str
    java: Java
    class_path: str

    def used(self) -> list[str]:
        """What makes the JVM use it; nothing if there is none."""
        try:
            found = self._taken() or self._tried()
        except OSError:
            return []
        return [] if found is None else _using(found)

    def made(self) -> list[str]:
        """What makes the JVM leave one behind when it ends."""
        try:
            self._forget_old()
            return [_QUIET, f"-XX:ArchiveClassesAtExit={self._new}"] if os.access(self.folder, os.W_OK) else []
        except OSError:
            return []

    @property
    def _fingerprint(self) -> str:
        """An archive holds for one JVM and for jars that nobody has touched since."""
        jars = [(path, Path(path).stat()) for path in self.class_path.split(os.pathsep)]
        facts = [str(self.java.path), self.java.version, *((path, at.st_size, at.st_mtime_ns) for path, at in jars)]
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]

    @property
    def _new(self) -> Path:
        return self.folder / f"{self.name}-{self._fingerprint}.new"

    def _taken(self) -> Path | None:
        """The archive that was taken before, if it is still as long as it was."""
        found = self.folder.glob(f"{self._new.stem}-*.jsa")
        return next((file for file in found if file.stem.rpartition("-")[2] == str(file.stat().st_size)), None)

    def _tried(self) -> Path | None:
        """A new archive that the JVM starts with, under the name it is taken by."""
        new = self._new
        if not _is_finished(new):
            return None
        # A JVM that trips writes down where, in the folder it was started in.
        trips = ["-XX:-CreateCoredumpOnCrash", f"-XX:ErrorFile={os.devnull}"]
        command = [str(self.java.path), "-Xshare:on", *trips, *_using(new), "-cp", self.class_path, "-version"]
        try:
            ran = subprocess.run(command, capture_output=True, check=False, timeout=_TRIED_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        if ran.returncode != 0:
            new.unlink()
            return None
        return new.rename(new.with_name(f"{new.stem}-{new.stat().st_size}.jsa"))

    def _forget_old(self) -> None:
        found = sorted(self.folder.glob(f"{self.name}-*.jsa"), key=lambda file: file.stat().st_mtime)
        for old in found[: max(len(found) - _KEPT, 0)]:
            old.unlink()


def _using(file: Path) -> list[str]:
    return [_QUIET, f"-XX:SharedArchiveFile={file}", "-XX:+VerifySharedSpaces"]


def _is_finished(file: Path) -> bool:
    try:
        with file.open("rb") as archive:
            return archive.read(len(_MAGIC)) == _MAGIC
    except FileNotFoundError:
        return False
