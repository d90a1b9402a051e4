"""Check what Spark needs before it starts: Java, memory, a port, a folder. Each failure is one message."""

import os
import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from strandline.errors import SetupError
from strandline.spark.launch.find_java import Java, find_java

GIB = 1024**3
MEMORY_NEEDED = int(1.5 * GIB)

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""The scheme of a URI. One letter is a drive of Windows."""
_LOCAL_URI = re.compile(r"^file:(?://(?:localhost)?)?/(?=[^/]|$)")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def local_folder(place: str | Path) -> Path:
    """Return a job's folder as a path, also from a file: URI; raise for another URI, or for an empty path."""
    place = _LOCAL_URI.sub("/", str(place))
    if not place.strip():
        raise SetupError("the job's folder has no name", hint='write run(checkpoint="totals.checkpoint")')
    scheme = _SCHEME.match(str(place))
    if scheme is not None:
        raise SetupError(
            f"{place} is no folder of a mounted file system",
            detail=f"a job's folder is read and written by its driver and by Spark, and {scheme[1]} is not a path",
            hint="name a path: of this machine, or on a cluster of a file system that all of its machines mount there",
        )
    return Path(place).absolute()


def require_machine(folder: Path) -> Java:
    """Check Java, memory, a port and the folder, and make Spark start that Java."""
    java = find_java()
    require_memory()
    require_port()
    require_writable(folder)
    # Spark's launcher prefers JAVA_HOME to PATH, so an old Java there would win over the one found.
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def require_memory(needed: int = MEMORY_NEEDED) -> int | None:
    """Return the free memory in bytes, None if unknown; raise if it is too little."""
    free = available_memory()
    if free is not None and free < needed:
        raise SetupError(
            f"not enough memory: {in_gib(free)} is free, Spark needs {in_gib(needed)}",
            hint="close other programs, or give the container or the machine more memory",
        )
    return free


def require_port() -> int:
    """Open and close a local port, as Spark's processes do; raise if that fails."""
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            return int(listener.getsockname()[1])
    except OSError as error:
        raise SetupError(
            "no port of 127.0.0.1 can be opened",
            detail=error.strerror or str(error),
            hint="bring the loopback interface up (ip link set lo up), or allow local sockets in the sandbox",
        ) from error


def require_writable(folder: Path) -> None:
    """Write a temporary file to the folder, creating missing parents; raise if that fails. Leaves nothing behind."""
    try:
        with _temporarily_created(folder), tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0")
            probe.flush()
    except OSError as error:
        raise SetupError(
            f"cannot write to the folder {folder}",
            detail=error.strerror or str(error),
            hint="choose another folder, or change its permissions",
        ) from error


def available_memory(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """Return the free memory within the limits of the machine and of its container, in bytes."""
    bounds = [bound for bound in (_machine_memory(meminfo), _container_memory(cgroup)) if bound is not None]
    return min(bounds, default=None)


def in_gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


@contextmanager
def _temporarily_created(folder: Path) -> Iterator[None]:
    made: list[Path] = []
    try:
        for part in reversed([folder, *folder.parents]):
            if not part.exists():
                part.mkdir()
                made.append(part)
        yield
    finally:
        for part in reversed(made):
            with suppress(OSError):
                part.rmdir()


def _machine_memory(meminfo: Path) -> int | None:
    for line in _lines(meminfo):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _container_memory(cgroup: Path) -> int | None:
    limit, used = _lines(cgroup / "memory.max"), _lines(cgroup / "memory.current")
    if not limit or not used or limit[0] == "max":
        return None
    # The kernel can drop clean file pages at once, so they count as free.
    idle = [int(line.split()[1]) for line in _lines(cgroup / "memory.stat") if line.startswith("inactive_file ")]
    return int(limit[0]) - int(used[0]) + sum(idle)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
