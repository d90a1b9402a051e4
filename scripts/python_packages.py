"""Install the packages of a lock file: with uv, or with pip where uv cannot be had.

uv is several times faster than pip, mostly because it keeps the wheel of pyspark (a source distribution of 450 MB) in
its cache and links files instead of copying them. Both installers check the lock's hashes.
Standard library only: prepare.py uses this before anything is installed.
"""

import ast
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from progress import Ran, Step

from strandline.errors import SetupError

LAST_LINES = 15
RETRY = "check the network or the proxy, then run the same command again"
BUILT_FROM_SOURCE = "pyspark"
BUILD_BACKENDS = ("setuptools", "uv-build")
"""What builds pyspark and this package. Both are locked, so that no build downloads its own."""
# A compressed wheel of pyspark takes 10 s of CPU time more, and is unpacked at once.
UNCOMPRESSED = f"{BUILT_FROM_SOURCE}:--build-option=--compression=stored"
COMPILED_EARLY = (
    "numpy", "pandas", "polars", "pyarrow.compute", "rich.live", "rich.table", "sse_starlette", "starlette.routing",
    "typer", "uvicorn",
)  # fmt: skip
"""Modules that the demo imports first. Importing them once compiles exactly the bytecode that is needed."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment and the checkout that it is for."""

    root: Path
    venv: Path

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def uv(self) -> Path:
        return self.venv / "bin" / "uv"

    def variables(self) -> dict[str, str]:
        """Environment variables for an installer. uv_build looks for its own program on PATH."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, "PATH": f"{self.python.parent}{os.pathsep}{kept.get('PATH', os.defpath)}"}


def install_packages(environment: Environment, lock: Path, full_lock: Path) -> None:
    """Install exactly what `lock` says, then this package. `full_lock` pins uv and the build backends."""
    pinned = full_lock.read_text(encoding="utf-8")
    backends = _write(environment, "backends.lock", "".join(entry_of(name, pinned) for name in BUILD_BACKENDS))
    if not (install_uv(environment, entry_of("uv", pinned)) and install_with_uv(environment, backends, lock)):
        install_with_pip(environment, backends, lock)


def install_uv(environment: Environment, entry: str) -> bool:
    """Install the pinned uv with pip. False where there is no wheel for this platform or no network."""
    file = _write(environment, "uv.lock", entry)
    with Step("uv, the installer") as step:
        # Without a wheel pip would build uv from source, which needs a Rust compiler.
        ran = step.run(
            [*_pip(environment), "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(file)],
            cwd=environment.root,
            environ=environment.variables(),
        )
        step.failed = ran.code != 0
        if step.failed:
            step.note(_last_line(ran))
    return ran.code == 0


def install_with_uv(environment: Environment, backends: Path, lock: Path) -> bool:
    """Install the lock with uv: wheels first, then pyspark, while Python compiles the wheels' modules."""
    wheels, source = split(lock.read_text(encoding="utf-8"))
    files = {name: _write(environment, f"{name}.lock", text) for name, text in (("wheels", wheels), ("source", source))}
    options, settings = uv_settings(_pip_configuration(environment), os.environ)
    variables = {**environment.variables(), **settings}
    uv = [str(environment.uv), "pip", "install", "--python", str(environment.python), "--no-deps", *options]
    locked = [*uv, "--require-hashes", "--no-build-isolation"]

    def run(step: Step, command: Sequence[str]) -> bool:
        ran = step.run(command, cwd=environment.root, environ=variables, on_line=_show_uv(step))
        step.failed = ran.code != 0
        if step.failed:
            step.note(f"uv: {_last_line(ran)}")
        return ran.code == 0

    with Step(f"{count(wheels)} Python packages") as step:
        if not run(step, [*locked, "-r", str(backends), "-r", str(files["wheels"])]):
            return False
    compiler = compile_early(environment)
    try:
        with Step("pyspark, built from source or taken from uv's cache") as step:
            if source and not run(
                step, [*locked, "--config-settings-package", UNCOMPRESSED, "-r", str(files["source"])]
            ):
                return False
        with Step("strandline itself") as step:
            return run(step, [*uv, "--no-build-isolation", "-e", str(environment.root)])
    finally:
        compiler.wait()


def compile_early(environment: Environment) -> "subprocess.Popen[bytes]":
    """Start a process that imports the demo's largest packages, so that their bytecode is there when the demo starts.

    uv compiles nothing. pip compiles every module, 20 s of CPU time for modules that are mostly never imported.
    """
    program = "import importlib, contextlib\n" + "\n".join(
        f"with contextlib.suppress(ImportError): importlib.import_module({name!r})" for name in COMPILED_EARLY
    )
    return subprocess.Popen(
        [environment.python, "-c", program],
        env=environment.variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def install_with_pip(environment: Environment, backends: Path, lock: Path) -> None:
    """Install the lock with pip."""
    # --no-deps: for a package with extras, pip takes the newest version of a dependency and then misses its hash.
    locked = [*_pip(environment), "--require-hashes", "--no-deps", "--no-build-isolation"]
    with Step("Python packages, with pip") as step:
        progress = PipProgress(step, count(lock.read_text(encoding="utf-8")))
        for requirements in (backends, lock):
            ran = step.run(
                [*locked, "-r", str(requirements)],
                cwd=environment.root,
                environ=environment.variables(),
                on_line=progress.on_line,
            )
            require_success(ran, "the Python packages could not be installed", hint=RETRY)
    with Step("strandline itself") as step:
        command = [*_pip(environment), "--no-deps", "--no-build-isolation", "-e", str(environment.root)]
        ran = step.run(command, cwd=environment.root, environ=environment.variables())
        require_success(ran, "strandline could not be installed", hint=RETRY)


class PipProgress:
    """Shows how many packages pip has looked at, and which one it is at."""

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


def entry_of(name: str, lock: str) -> str:
    """Return the lines of one package in the lock, with its hashes."""
    found = re.search(rf"^{re.escape(name)}==.*\n(?:[ \t]+--hash=.*\n)+", lock, re.MULTILINE)
    if found is None:
        raise SetupError(f"the lock has no entry for {name}", hint="make requirements.lock again (CONTRIBUTING.md)")
    return found[0]


def split(lock: str) -> tuple[str, str]:
    """Split a lock into the packages that come as wheels and the one that is built from source."""
    entries = re.split(r"^(?=\S)", lock, flags=re.MULTILINE)
    source = [entry for entry in entries if entry.startswith(f"{BUILT_FROM_SOURCE}==")]
    return "".join(entry for entry in entries if entry not in source), "".join(source)


def count(lock: str) -> int:
    return len(re.findall(r"^\S+==", lock, re.MULTILINE))


def uv_settings(pip: str, environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Translate pip's configuration for uv, which does not read it; what the user set for uv itself takes precedence.

    `pip` is the output of `pip config list`. Returns options and environment variables. Index addresses are passed as
    variables, because they may contain a password.
    """
    chosen = _pip_options(pip)
    found: dict[str, str] = {}
    if not {"UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX"} & environ.keys():
        if "index-url" in chosen:
            found["UV_DEFAULT_INDEX"] = chosen["index-url"]
        if "extra-index-url" in chosen:
            found["UV_INDEX"] = " ".join(chosen["extra-index-url"].split())
            # pip takes the best match of all indexes; uv stops at the first index that has the package.
            found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if "find-links" in chosen:
        found["UV_FIND_LINKS"] = ",".join(chosen["find-links"].split())
    if "trusted-host" in chosen:
        found["UV_INSECURE_HOST"] = " ".join(chosen["trusted-host"].split())
    if "timeout" in chosen:
        found["UV_HTTP_TIMEOUT"] = chosen["timeout"]
    if "default-timeout" in chosen:
        found["UV_HTTP_TIMEOUT"] = chosen["default-timeout"]
    if "cert" in chosen:
        found["SSL_CERT_FILE"] = chosen["cert"]
    if "proxy" in chosen:
        found["ALL_PROXY"] = chosen["proxy"]
    options = ["--no-index"] if chosen.get("no-index", "").lower() in {"1", "true", "yes", "on"} else []
    return options, {name: value for name, value in found.items() if name not in environ}


def _pip_options(listed: str) -> dict[str, str]:
    """Read `pip config list`; a variable overrides the [install] section, which overrides [global]."""
    chosen: dict[str, str] = {}
    lines = listed.splitlines()
    for section in ("global.", "install.", ":env:."):
        for line in lines:
            name, separator, value = line.partition("=")
            if separator and name.startswith(section):
                with suppress(SyntaxError, ValueError):
                    chosen[name.removeprefix(section)] = str(ast.literal_eval(value))
    return chosen


def _pip_configuration(environment: Environment) -> str:
    command = [str(environment.python), "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout


def require_success(ran: Ran, message: str, *, hint: str) -> None:
    """Raise SetupError with the last lines of the output if the command failed."""
    if ran.code != 0:
        last = ran.output.strip().splitlines()[-LAST_LINES:]
        raise SetupError(message, detail="\n  " + "\n  ".join(last) + "\n", hint=hint)


def _pip(environment: Environment) -> list[str]:
    return [str(environment.python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]


def _write(environment: Environment, name: str, text: str) -> Path:
    file = environment.venv / name
    file.write_text(text, encoding="utf-8")
    return file


def _show_uv(step: Step) -> Callable[[str], None]:
    """Show uv's lines about a package, such as `Downloading polars (51 MiB)`, as the step's current action."""

    def on_line(line: str) -> None:
        if re.match(r"\s*(?:Downloading|Downloaded|Building|Built|Prepared|Installed) ", line):
            step.doing(line.strip().lower())

    return on_line


def _last_line(ran: Ran) -> str:
    return next((line.strip() for line in reversed(ran.output.splitlines()) if line.strip()), "no output")
