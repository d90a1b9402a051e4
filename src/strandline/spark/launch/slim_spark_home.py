"""Make a SPARK_HOME without pyspark.zip, so that Python workers start in a third of the time.

Spark puts `pyspark.zip` first on the module path of a worker. The archive has no bytecode, so each process compiles the
package: 0.9 s of CPU time, against 0.2 s for the installed package. A job starts seven such processes one after the
other before its first batch (decision 0024). The slim home links to Spark's scripts and jars, and has no archive.
"""

import contextlib
import hashlib
import os
import shutil
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyspark

from strandline.spark.launch.jars import home
from strandline.spark.patches.switch import is_on

_LINKED: Final = ("bin", "conf", "jars", "sbin")
_HOME: Final = "SPARK_HOME"
_WORKERS: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")


def workers_run_this_python(settings: Mapping[str, str]) -> bool:
    """Whether Spark's workers are this Python on this machine, and find the PySpark that is imported here."""
    package = Path(pyspark.__file__).parent
    return (
        _HOME not in os.environ
        and os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
        and not any(name in settings for name in _WORKERS)
        and settings.get("spark.master", "").startswith("local")
        and package.parent in _site_packages()
        and (package / "jars").is_dir()
    )


def slim_home() -> Path | None:
    """Return the slim home of the installed PySpark; None if it is switched off or cannot be written."""
    try:
        return _linked(Path(pyspark.__file__).parent) if is_on("slim_home") else None
    except OSError:  # no place to write, or no symbolic links
        return None


def _site_packages() -> set[Path]:
    """Return the folders where every process of this Python finds packages."""
    known = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    return {Path(each) for each in [*known, *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]}


def _linked(package: Path) -> Path | None:
    folder = home() / "spark" / hashlib.sha256(str(package).encode()).hexdigest()[:12]
    if not folder.is_dir():
        _remove_stale(folder.parent)
    folder.mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        link, target = folder / name, package / name
        if target.is_dir() and not link.exists():
            with contextlib.suppress(FileExistsError):  # another process made it at the same time
                link.symlink_to(target, target_is_directory=True)
    return folder if (folder / "bin").is_dir() and (folder / "jars").is_dir() else None


def _remove_stale(homes: Path) -> None:
    """Remove homes of packages that no longer exist, with their large class archives."""
    for each in homes.iterdir() if homes.is_dir() else ():
        if (each / "jars").is_symlink() and not (each / "jars").exists():
            shutil.rmtree(each, ignore_errors=True)


@contextlib.contextmanager
def with_spark_home(folder: Path | None) -> Iterator[None]:
    """Set SPARK_HOME while a Spark is started, and restore the environment afterwards."""
    if folder is None:
        yield
        return
    os.environ[_HOME] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(_HOME, None)
