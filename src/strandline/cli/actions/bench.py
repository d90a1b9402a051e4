"""Find and run the benchmarks of a checkout: `strandline bench`. They are not part of the installed package."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from strandline.errors import SetupError


def find_checkout(here: Path) -> Path:
    """Return the checkout that contains a folder, or the one this package runs from."""
    places = [here, *here.parents, *Path(__file__).resolve().parents]
    for place in places:
        if (place / "benchmarks" / "windows.py").is_file() and (place / "src" / "strandline").is_dir():
            return place
    raise SetupError(
        "the benchmarks are not installed",
        detail=f"neither {here} nor a folder above it is a checkout of Strandline",
        hint="they are part of the repository, not of the package: clone it, and run `strandline bench` there",
    )


def run_bench(name: str, *, quick: bool, only: list[str], rounds: int | None, work: Path | None, again: bool) -> int:
    """Run one benchmark; return 0 if all of its numbers are valid."""
    module, options_of = _benchmark(name)
    return int(module.main(options_of(quick, tuple(only), rounds, work, again)))


def run_profile(cell: str, *, quick: bool, work: Path | None, as_json: bool) -> int:
    """Profile one run."""
    module, options_of = _benchmark("profile")
    return int(module.main(options_of(quick=quick, work=work), cell, as_json=as_json))


def run_soak(minutes: float, *, rate: int, quick: bool, work: Path | None) -> int:
    """Run a job for some minutes and report whether its memory and state stay constant."""
    module, options_of = _benchmark("soak")
    return int(module.main(options_of(quick=quick, work=work), minutes, rate))


def _benchmark(name: str) -> tuple[Any, Callable[..., Any]]:
    """Import a benchmark of the checkout, with the class of its options."""
    sys.path.insert(0, str(find_checkout(Path.cwd())))
    try:
        from benchmarks.turns import Asked

        return import_module(f"benchmarks.{name}"), Asked
    except ModuleNotFoundError as missing:
        raise SetupError(
            f"the benchmarks need {missing.name}", hint="install the checkout with its extra: pip install -e '.[dev]'"
        ) from None
