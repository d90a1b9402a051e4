"""Collect the commit, machine and versions of a measurement."""

import hashlib
import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGES: Final = ("pyspark", "polars", "pyarrow", "pandas", "numpy", "duckdb")


def facts() -> dict[str, Any]:
    """Return machine facts that a reader needs to judge a number."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java(),
        "packages": {name: version(name) for name in _PACKAGES},
        "date": datetime.now(UTC).date().isoformat(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        return "unknown"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    return told.partition("\n")[0]


def commit() -> str:
    """Return the measured commit, marked if files differ from it."""
    changed = _git("diff", "HEAD", "--", "src", "benchmarks", ":!benchmarks/results")
    mark = f"+{hashlib.sha256(changed.encode()).hexdigest()[:8]}" if changed else ""
    return _git("rev-parse", "--short=12", "HEAD").strip() + mark


def _git(*words: str) -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    return subprocess.run([git, *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout
