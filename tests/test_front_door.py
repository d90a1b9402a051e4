"""The front door: every public name is there, says what it is, and opening it costs next to nothing."""

import inspect
import subprocess
import sys
from importlib.metadata import version

import pytest

import strandline as sl

HEAVY = ("pyspark", "polars", "pandas", "pyarrow", "numpy")


@pytest.mark.parametrize("name", sl.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    thing = getattr(sl, name)
    if not isinstance(thing, sl.Accumulation):  # the three accumulations are members of a documented family
        assert inspect.getdoc(thing), f"{name} has no docstring"
        assert inspect.getdoc(thing) != inspect.getdoc(type(thing)), f"{name} has no docstring of its own"


def test_public_names_are_listed_once_and_in_order() -> None:
    assert sorted(set(sl.__all__)) == list(sl.__all__)


def test_the_version_is_the_one_of_the_package() -> None:
    assert sl.__version__ == version("strandline")


def test_a_name_that_is_not_there_is_missed_as_python_does() -> None:
    with pytest.raises(AttributeError, match="strandline has no 'kafkaesque'"):
        _ = sl.kafkaesque


def test_opening_it_loads_nothing_heavy() -> None:
    program = f"import sys, strandline; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_a_pipeline_is_written_without_loading_anything_heavy() -> None:
    program = f"""
import sys
import strandline as sl
sl.bounded(seconds=3).idle_after(seconds=4), sl.tumbling(seconds=5), sl.sum("score")
sl.after_watermark(early=sl.every(seconds=2), late=sl.after_count(1))
print(sorted(set({HEAVY!r}) & set(sys.modules)))
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
