"""Prepare this checkout to run: virtual environment, packages, Java, JVM packages, and for tests a browser.

Started by ./demo, ./bench and ./test. A second start does nothing. Each step prints how long it took.
Standard library only, and Python 3.11 or newer.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

if __name__ == "__main__":
    # Nothing is installed yet: these modules must load without strandline/__init__.py, which imports dependencies.
    _bare = types.ModuleType("strandline")
    _bare.__path__ = [str(ROOT / "src" / "strandline")]
    sys.modules["strandline"] = _bare

from progress import Ran, Step
from python_packages import Environment, install_packages, require_success

from strandline.errors import SetupError
from strandline.spark.launch.find_java import find_java
from strandline.spark.launch.jars import missing
from strandline.spark.launch.package_manager import APT, PackageManager, find_chromium, find_manager, java_line

FULL_LOCK = "requirements.lock"
DEMO_LOCK = "requirements-demo.lock"
"""The part of the full lock that ./demo needs: a third of the packages, no developer tools. Made after the full lock:

    uv pip compile pyproject.toml --extra dashboard --extra kafka -c requirements.lock --universal \\
        --python-version 3.11 --generate-hashes --no-header -o requirements-demo.lock
"""


class Checkout:
    """A checkout and its virtual environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = Environment(root, root / ".venv")
        self.venv = self.environment.venv
        self.python = self.environment.python
        self.stamp = self.venv / "prepared.json"

    def fingerprint(self, lock: str) -> dict[str, str]:
        """Return what the environment is built from. While it stays the same, nothing is installed again."""
        return {
            "lock": _sha256(self.root / lock),
            "project": _sha256(self.root / "pyproject.toml"),
            "python": self.python_version() or "none",
        }

    def is_ready(self, lock: str) -> bool:
        """Return True if this lock is installed, or the full lock, which contains it."""
        try:
            installed = json.loads(self.stamp.read_text(encoding="utf-8"))
            return any(installed == self.fingerprint(each) for each in {lock, FULL_LOCK})
        except (OSError, ValueError):
            return False

    def python_version(self) -> str | None:
        """Ask the environment's Python for its version; None if it is gone or broken."""
        if Path(sys.prefix) == self.venv:
            return _running_version()
        try:
            answer = subprocess.run(
                [self.python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                capture_output=True,
                text=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return answer.stdout.strip()

    def can_install(self) -> bool:
        """Return False if there is no environment, if it was interrupted while being made, or if its Python is gone."""
        if not self.python.exists():
            return False
        answer = subprocess.run([self.python, "-m", "pip", "--version"], capture_output=True, check=False)
        return answer.returncode == 0


def prepare(checkout: Checkout, *, for_demo: bool = False, with_java: bool = True, with_browser: bool = False) -> None:
    """Install what ./demo, ./bench or ./test needs, in order.

    For the demo no JVM packages are fetched: only Kafka sources use them, and `./demo --kafka` fetches them itself.
    """
    lock = DEMO_LOCK if for_demo else FULL_LOCK
    if not checkout.is_ready(lock):
        with exclusive(checkout.root):
            if not checkout.is_ready(lock):
                make_environment(checkout, lock)
    if with_java:
        make_java_ready()
        if not for_demo:
            make_jars_ready(checkout)
    if with_browser:
        make_browser_ready()


@contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """Hold the folder's lock; a second start waits for the first."""
    handle = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with Step("waiting for another start in this folder"):
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def make_environment(checkout: Checkout, lock: str) -> None:
    """Create the virtual environment and install the lock. The stamp is written last, so interrupted work is redone."""
    checkout.stamp.unlink(missing_ok=True)
    if not checkout.can_install():
        make_venv(checkout)
    install_packages(checkout.environment, checkout.root / lock, checkout.root / FULL_LOCK)
    checkout.stamp.write_text(json.dumps(checkout.fingerprint(lock)), encoding="utf-8")


def make_venv(checkout: Checkout) -> None:
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        install_venv_module()
    with Step("virtual environment") as step:
        # venv asks for the base interpreter itself, so this also works from inside the environment it replaces.
        require_success(
            step.run([sys.executable, "-m", "venv", "--clear", str(checkout.venv)], cwd=checkout.root),
            f"the virtual environment {checkout.venv} could not be made",
            hint="the folder must be writable and have about 2 GB of room",
        )


def install_venv_module() -> None:
    package = f"python{_running_version()}-venv"
    manager = find_manager()
    if manager is not APT:
        raise SetupError("this Python has no venv module", hint="install your system's full Python, with ensurepip")
    if (prefix := root_prefix(manager)) is None:
        raise SetupError("this Python has no venv module", hint=f"type: {manager.line(package)}")
    with Step(f"installing {package}") as step:
        step.run([*prefix, manager.program, *manager.refresh], cwd=ROOT, environ=_unattended())
        require_success(
            step.run([*prefix, *manager.command(package)], cwd=ROOT, environ=_unattended()),
            f"{package} could not be installed",
            hint=f"type: {manager.line(package)}",
        )
    importlib.invalidate_caches()


def make_java_ready() -> None:
    """Find Java, or install it with the system's package manager where that is allowed."""
    try:
        find_java()
    except SetupError:
        manager = find_manager()
        if manager is None or (prefix := root_prefix(manager)) is None:
            raise
        install_java(manager, prefix)
        find_java()


def install_java(manager: PackageManager, prefix: Sequence[str]) -> None:
    """Install Java under the first package name that the system knows."""
    with Step("installing Java") as step:
        ran = install_first(step, manager, prefix, manager.java)
        require_success(ran, "Java could not be installed", hint=java_line(manager))


def install_first(step: Step, manager: PackageManager, prefix: Sequence[str], packages: Sequence[str]) -> Ran:
    """Install the first of these packages that the system knows; return the last failure if it knows none."""
    ran = Ran(1, "")
    if manager.refresh:
        step.doing("refreshing the list of packages")
        step.run([*prefix, manager.program, *manager.refresh], cwd=ROOT, environ=_unattended())
    for package in packages:
        step.doing(package)
        ran = step.run([*prefix, *manager.command(package)], cwd=ROOT, environ=_unattended())
        if ran.code == 0:
            break
    return ran


def make_browser_ready() -> None:
    """Install Chromium with the package manager. Where that is impossible, browser tests are skipped and say so."""
    manager = find_manager()
    if find_chromium() is not None or manager is None or not manager.chromium:
        return
    if (prefix := root_prefix(manager)) is None:
        return
    with Step("installing Chromium, for the tests of the dashboard") as step:
        step.failed = install_first(step, manager, prefix, manager.chromium).code != 0


def root_prefix(manager: PackageManager) -> list[str] | None:
    """Return what precedes an install command: nothing, sudo without a password, or None if this is not allowed."""
    if os.geteuid() == 0:
        # Homebrew refuses to work for root.
        return [] if manager.needs_root else None
    if not manager.needs_root:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0:
        return [sudo, "-n"]
    return None


def make_jars_ready(checkout: Checkout) -> None:
    """Fetch the JVM packages that are missing."""
    if not missing():
        return
    with Step("JVM packages, by Spark's resolver") as step:
        fetch = [str(checkout.python), "-m", "strandline.spark.launch.jars"]
        ran = step.run(fetch, cwd=checkout.root, on_line=step.doing)
        if ran.code != 0:
            raise SetupError(ran.output.strip().rpartition("\n")[2].removeprefix("error: "))


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _running_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _unattended() -> dict[str, str]:
    return {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--for-demo", action="store_true", help="install what the demo needs, and no JVM packages")
    parser.add_argument("--without-java", action="store_true", help="prepare Python only")
    parser.add_argument("--with-browser", action="store_true", help="prepare a browser too, for the tests")
    options = parser.parse_args(arguments)
    try:
        prepare(
            Checkout(ROOT),
            for_demo=options.for_demo,
            with_java=not options.without_java,
            with_browser=options.with_browser,
        )
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: this folder cannot be prepared: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the next start goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
