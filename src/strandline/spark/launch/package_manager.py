"""Find the system's package manager, and the command that installs a package."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PackageManager:
    """A package manager: its program, its commands, and its packages of Java and Chromium, best first."""

    program: str
    refresh: tuple[str, ...]
    install: tuple[str, ...]
    java: tuple[str, ...]
    chromium: tuple[str, ...] = ("chromium",)
    needs_root: bool = True

    def command(self, package: str) -> list[str]:
        return [self.program, *self.install, package]

    def line(self, package: str) -> str:
        """Return the shell command that installs a package. Refreshes the package list first where that is separate."""
        steps = [[self.program, *self.refresh]] if self.refresh else []
        sudo = "sudo " if self.needs_root else ""
        return " && ".join(sudo + " ".join(step) for step in [*steps, self.command(package)])


APT = PackageManager(
    "apt-get",
    refresh=("update",),
    install=("install", "-y"),
    java=("openjdk-21-jre-headless", "openjdk-17-jre-headless", "default-jre-headless"),
)
DNF = PackageManager(
    "dnf",
    refresh=(),
    install=("install", "-y"),
    java=("java-21-openjdk-headless", "java-17-openjdk-headless", "java-latest-openjdk-headless"),
)
APK = PackageManager(
    "apk",
    refresh=("update",),
    install=("add",),
    java=("openjdk21-jre-headless", "openjdk17-jre-headless"),
)
BREW = PackageManager(
    "brew",
    refresh=(),
    install=("install",),
    java=("openjdk@21", "openjdk@17"),
    chromium=(),
    needs_root=False,
)

MANAGERS = (APT, DNF, APK, BREW)


def find_manager(managers: Sequence[PackageManager] = MANAGERS) -> PackageManager | None:
    """Return the first package manager that this machine has."""
    return next((manager for manager in managers if shutil.which(manager.program)), None)


def java_line(manager: PackageManager | None) -> str:
    """Return the hint that installs a Java for Spark."""
    if manager is None:
        return "install Java 17 or newer from your system's packages, or set JAVA_HOME to where it is"
    return f"type: {manager.line(_java_package(manager))}"


def find_chromium() -> str | None:
    """Return the Chromium for tests of the dashboard, if it is installed."""
    return next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)


def _java_package(manager: PackageManager) -> str:
    # Debian and Ubuntu each hold other versions; a name that apt does not know would be a hint that fails.
    if manager is not APT:
        return manager.java[0]
    known = (package for package in manager.java if _apt_knows(package))
    return next(known, manager.java[-1])


def _apt_knows(package: str) -> bool:
    program = shutil.which("apt-cache")
    if program is None:
        return False
    # The exit code is good for a name that other packages only mention; a package that exists is described.
    ran = subprocess.run([program, "show", package], capture_output=True, text=True, check=False)
    return ran.stdout.startswith("Package:")
