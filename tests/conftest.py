"""How all tests run: frames on one thread, as in Spark's workers, and a handful of examples for each property.

In the fast tier they are fewer still; STRANDLINE_EXAMPLES=5000 ./test tests/kernel looks harder.
"""

import faulthandler
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# Steps over small frames lose more to a thread pool than they win; Polars reads this when it is first imported.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

FAST, USUAL = 10, 40
_TRACER = sys.gettrace()
_MEASURING = Path(__file__).parent / "benchmarks"


def pytest_configure(config: pytest.Config) -> None:
    fast = "not spark" in str(config.getoption("markexpr"))
    examples = int(os.environ.get("STRANDLINE_EXAMPLES", FAST if fast else USUAL))
    # No deadline: the machine may be busy, and a slow example is not a wrong one.
    settings.register_profile("strandline", max_examples=examples, deadline=None, print_blob=True)
    settings.load_profile("strandline")
    # Hypothesis draws constants from the modules that are loaded: what it generates would depend on the tests before.
    providers._get_local_constants = lambda: providers._local_constants
    # Whoever runs the tests asks with it where they hang. What tests say is captured; this is not.
    faulthandler.register(signal.SIGUSR1, file=os.dup(2), all_threads=True)
    if fast:
        # The kernel plays them all in the whole run; the oracle takes a second.
        config.option.stories_on = "reference"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before it is decided who runs: the fast tier starts no JVM, and leaves out what only those need who measure."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if item.path.is_relative_to(_MEASURING):
            item.add_marker("slow")


def pytest_runtest_setup() -> None:
    """Python drops whoever traces when the stack runs out, which some tests see to; coverage would end there."""
    if _TRACER is not None and sys.gettrace() is None:
        sys.settrace(_TRACER)


pytest_plugins = ["strandline.testing.plugin", "strandline.testing.services", "tests.spark_session", "tests.schedule"]
