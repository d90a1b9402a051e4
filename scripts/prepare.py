"""Makes this folder ready to run: virtual environment, packages, Java, JVM packages, and for tests a browser.

A second start does nothing.
Standard library only, and Python 3.11 or newer; ./demo, ./bench and ./test start it.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

if __name__ == "__main__":
    # Nothing is installed yet: the package's plain modules must load without its front door and its dependencies.
    _bare = types.ModuleType("strandline")
    _bare.__path__ = [str(ROOT / "src" / "strandline")]
    sys.modules["strandline"] = _bare

from progress import Ran, Step

from strandline.errors import SetupError
from strandline.spark.launch.find_java import find_java
from strandline.spark.launch.jars import missing
from strandline.spark.launch.package_manager import APT, PackageManager, find_chromium, find_manager, java_line

LAST_LINES = 15


class Workshop:
    """One checkout and what is made inside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.python = self.venv / "bin" / "python"
        self.lock = root / "requirements.lock"
        self.stamp = self.venv / "prepared.json"

    def fingerprint(self) -> dict[str, str]:
        """What the environment is made from; while it stays the same, nothing is installed again."""
        return {
            "lock": hashlib.sha256(self.lock.read_bytes()).hexdigest(),
            "project": hashlib.sha256((self.root / "pyproject.toml").read_bytes()).hexdigest(),
            "python": self.python_version() or "none",
        }

    def is_ready(self) -> bool:
        try:
            return bool(json.loads(self.stamp.read_text(encoding="utf-8")) == self.fingerprint())
        except (OSError, ValueError):
            return False

    def python_version(self) -> str | None:
        """The version of the environment's Python, as it answers now; None when it is gone or broken."""
        if Path(sys.prefix) == self.venv:
            return _running_version()
        try:
            asked = subprocess.run(
                [self.python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                capture_output=True,
                text=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return asked.stdout.strip()

    def can_install(self) -> bool:
        """False when there is no environment yet, when making it was broken off, and when its Python was replaced."""
        if not self.python.exists():
            return False
        asked = subprocess.run([self.python, "-m", "pip", "--version"], capture_output=True, check=False)
        return asked.returncode == 0


def prepare(workshop: Workshop, *, with_java: bool, with_browser: bool = False) -> None:
    """Everything ./demo, ./bench and ./test need, in order."""
    if not workshop.is_ready():
        with alone_in(workshop.root):
            if not workshop.is_ready():
                make_environment(workshop)
    if with_java:
        make_java_ready()
        make_jars_ready(workshop)
    if with_browser:
        make_browser_ready()


@contextmanager
def alone_in(root: Path) -> Iterator[None]:
    """One start at a time; a second one waits for the first."""
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


def make_environment(workshop: Workshop) -> None:
    """The virtual environment, then the packages; the stamp comes last, so that a broken-off start is done again."""
    workshop.stamp.unlink(missing_ok=True)
    if not workshop.can_install():
        make_venv(workshop)
    install_packages(workshop)
    workshop.stamp.write_text(json.dumps(workshop.fingerprint()), encoding="utf-8")


def make_venv(workshop: Workshop) -> None:
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        install_venv_module()
    with Step("virtual environment") as step:
        # venv asks for the base interpreter itself, so this also works from inside the environment it replaces.
        must(
            step.run([sys.executable, "-m", "venv", "--clear", str(workshop.venv)], cwd=workshop.root),
            f"the virtual environment {workshop.venv} could not be made",
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
        must(
            step.run([*prefix, *manager.command(package)], cwd=ROOT, environ=_unattended()),
            f"{package} could not be installed",
            hint=f"type: {manager.line(package)}",
        )
    importlib.invalidate_caches()


def install_packages(workshop: Workshop) -> None:
    """From the lock and nothing else; what builds pyspark and this package is in it, so no build fetches its own."""
    lock = workshop.lock.read_text(encoding="utf-8")
    pip = [str(workshop.python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    # uv_build looks for its own program on PATH.
    environ = {**os.environ, "PATH": f"{workshop.python.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    retry = "check the network or the proxy, then run the same command again"
    builders = workshop.venv / "builders.lock"
    builders.write_text(entry_of("setuptools", lock), encoding="utf-8")
    # No dependencies beside it: asked for one with extras, pip takes the newest there is and then misses its hash.
    locked = [*pip, "--require-hashes", "--no-deps", "--no-build-isolation"]
    with Step("Python packages") as step:
        count = PipReader(step, total=len(re.findall(r"^\S+==", lock, re.MULTILINE)))
        for requirements in (builders, workshop.lock):
            ran = step.run(
                [*locked, "-r", str(requirements)], cwd=workshop.root, environ=environ, on_line=count.on_line
            )
            must(ran, "the Python packages could not be installed", hint=retry)
    with Step("strandline itself") as step:
        command = [*pip, "--no-deps", "--no-build-isolation", "-e", str(workshop.root)]
        must(step.run(command, cwd=workshop.root, environ=environ), "strandline could not be installed", hint=retry)


def entry_of(name: str, lock: str) -> str:
    """The lines of one package in the lock, with its hashes."""
    found = re.search(rf"^{re.escape(name)}==.*\n(?:[ \t]+--hash=.*\n)+", lock, re.MULTILINE)
    if found is None:
        raise SetupError(f"the lock has no entry for {name}", hint="make requirements.lock again (CONTRIBUTING.md)")
    return found[0]


class PipReader:
    """Reads pip's talk down to how many packages are done and which one is at hand."""

    def __init__(self, step: Step, total: int) -> None:
        self._step = step
        self._total = total
        self._seen: set[str] = set()

    def on_line(self, line: str) -> None:
        named = re.match(r"(?:Collecting|Requirement already satisfied:|Ignoring) ([A-Za-z0-9._-]+)", line)
        if named:
            self._seen.add(named[1])
            self._step.doing(f"{len(self._seen)} of {self._total}: {named[1]}")
        elif line.strip().startswith("Building wheel for"):
            self._step.doing("building " + line.split()[3])
        elif line.startswith("Installing collected packages"):
            self._step.doing("unpacking them all")


def make_java_ready() -> None:
    """Finds Java, or has the system's package manager install it where it may."""
    try:
        find_java()
    except SetupError:
        manager = find_manager()
        if manager is None or (prefix := root_prefix(manager)) is None:
            raise
        install_java(manager, prefix)
        find_java()


def install_java(manager: PackageManager, prefix: Sequence[str]) -> None:
    """Tries what the system may call Java, the best name first."""
    with Step("installing Java") as step:
        must(install_first(step, manager, prefix, manager.java), "Java could not be installed", hint=java_line(manager))


def install_first(step: Step, manager: PackageManager, prefix: Sequence[str], packages: Sequence[str]) -> Ran:
    """Installs the first of these names that the system knows; the last answer if it knows none."""
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
    """Has the package manager install Chromium; where it cannot, tests in a browser are skipped and say so."""
    manager = find_manager()
    if find_chromium() is not None or manager is None or not manager.chromium:
        return
    if (prefix := root_prefix(manager)) is None:
        return
    with Step("installing Chromium, for the tests of the dashboard") as step:
        step.failed = install_first(step, manager, prefix, manager.chromium).code != 0


def root_prefix(manager: PackageManager) -> list[str] | None:
    """What to put before an install command: nothing, sudo that asks no password, or None when we may not install."""
    if os.geteuid() == 0:
        # Homebrew refuses to work for root.
        return [] if manager.needs_root else None
    if not manager.needs_root:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0:
        return [sudo, "-n"]
    return None


def make_jars_ready(workshop: Workshop) -> None:
    if not missing():
        return
    with Step("JVM packages, by Spark's resolver") as step:
        fetch = [str(workshop.python), "-m", "strandline.spark.launch.jars"]
        ran = step.run(fetch, cwd=workshop.root, on_line=step.doing)
        if ran.code != 0:
            raise SetupError(ran.output.strip().rpartition("\n")[2].removeprefix("error: "))


def must(ran: Ran, message: str, *, hint: str) -> None:
    """Goes on when the command went well; else shows the end of what it said and refuses."""
    if ran.code != 0:
        last = ran.output.strip().splitlines()[-LAST_LINES:]
        raise SetupError(message, detail="\n  " + "\n  ".join(last) + "\n", hint=hint)


def _running_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _unattended() -> dict[str, str]:
    return {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--without-java", action="store_true", help="prepare Python only")
    parser.add_argument("--with-browser", action="store_true", help="prepare a browser too, for the tests")
    asked = parser.parse_args(arguments)
    try:
        prepare(Workshop(ROOT), with_java=not asked.without_java, with_browser=asked.with_browser)
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
