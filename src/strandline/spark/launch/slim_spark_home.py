"""A home of Spark without the archive of its Python package, so that workers start in a third of the time.

Spark puts `pyspark.zip` first where a worker looks for modules. There is no bytecode in it: each process that Spark
starts compiles the package anew, 0.9 s of CPU time where the installed package takes 0.2, and a job starts seven of
them one after the other before its first batch (decision 0024). This home has links to all that Spark needs of the
package, and no such archive.
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

_LINKED: Final = ("bin", "conf", "jars", "sbin")
_HOME: Final = "SPARK_HOME"
_WORKERS: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")


def lean_home(settings: Mapping[str, str]) -> Path | None:
    """Such a home for a Spark in this process; None where workers may need the archive, or somebody has said another.

    They need it unless they are this Python and find the very package that is imported here by themselves.
    """
    package = Path(pyspark.__file__).parent
    ours = (
        _HOME not in os.environ
        and os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
        and not any(name in settings for name in _WORKERS)
        and settings.get("spark.master", "").startswith("local")
        and package.parent in _installed()
        and (package / "jars").is_dir()
    )
    try:
        return _linked(package) if ours else None
    except OSError:  # no place to write, or no links: it goes without
        return None


def _installed() -> set[Path]:
    """Where any process of this Python finds packages."""
    known = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    return {Path(each) for each in [*known, *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]}


def _linked(package: Path) -> Path | None:
    folder = home() / "spark" / hashlib.sha256(str(package).encode()).hexdigest()[:12]
    if not folder.is_dir():
        _forget_gone(folder.parent)
    folder.mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        link, there = folder / name, package / name
        if there.is_dir() and not link.exists():
            with contextlib.suppress(FileExistsError):  # of two that start at once, one is enough
                link.symlink_to(there, target_is_directory=True)
    return folder if (folder / "bin").is_dir() and (folder / "jars").is_dir() else None


def _forget_gone(homes: Path) -> None:
    """Homes of packages that are no more, and the archives of classes in them, which are large."""
    for each in homes.iterdir() if homes.is_dir() else ():
        if (each / "jars").is_symlink() and not (each / "jars").exists():
            shutil.rmtree(each, ignore_errors=True)


@contextlib.contextmanager
def at_home(folder: Path | None) -> Iterator[None]:
    """Spark is started from there; afterwards the environment is what it was."""
    if folder is None:
        yield
        return
    os.environ[_HOME] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(_HOME, None)
