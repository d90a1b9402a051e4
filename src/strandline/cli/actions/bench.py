"""`strandline bench`: finds the benchmarks of the checkout it runs in; they are no part of the installed package."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from strandline.errors import SetupError


def find_checkout(here: Path) -> Path:
    """The checkout around a folder, or else the one this package is run from."""
    places = [here, *here.parents, *Path(__file__).resolve().parents]
    for place in places:
        if (place / "benchmarks" / "windows.py").is_file() and (place / "src" / "strandline").is_dir():
            return place
    raise SetupError(
        "the benchmarks are not here",
        detail=f"neither {here} nor a folder above it is a checkout of Strandline",
        hint="they are part of the repository, not of the package: clone it, and run `strandline bench` there",
    )


def run_bench(name: str, *, quick: bool, only: list[str], rounds: int | None, work: Path | None, again: bool) -> int:
    """Measures something against its peers; 0 if every number counts."""
    module, asked = _found(name)
    return int(module.main(asked(quick, tuple(only), rounds, work, again)))


def run_profile(cell: str, *, quick: bool, work: Path | None, as_json: bool) -> int:
    """Tells where the time of one run goes."""
    module, asked = _found("profile")
    return int(module.main(asked(quick=quick, work=work), cell, as_json=as_json))


def run_soak(minutes: float, *, rate: int, quick: bool, work: Path | None) -> int:
    """Runs a job for so long and tells whether what it holds stays as it is."""
    module, asked = _found("soak")
    return int(module.main(asked(quick=quick, work=work), minutes, rate))


def _found(name: str) -> tuple[Any, Callable[..., Any]]:
    """A benchmark of the checkout, and what it is asked with."""
    sys.path.insert(0, str(find_checkout(Path.cwd())))
    try:
        from benchmarks.turns import Asked

        return import_module(f"benchmarks.{name}"), Asked
    except ModuleNotFoundError as missing:
        raise SetupError(
            f"the benchmarks need {missing.name}", hint="install the checkout with its extra: pip install -e '.[dev]'"
        ) from None
