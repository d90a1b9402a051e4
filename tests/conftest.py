"""How all tests run: frames on one thread, as in Spark's workers, and a handful of examples for each property.

STRANDLINE_EXAMPLES=5000 ./test tests/properties looks harder.
"""

import os

from hypothesis import settings

# Steps over small frames lose more to a thread pool than they win; Polars reads this when it is first imported.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

# No deadline: the machine may be busy, and a slow example is not a wrong one.
settings.register_profile(
    "strandline", max_examples=int(os.environ.get("STRANDLINE_EXAMPLES", "40")), deadline=None, print_blob=True
)
settings.load_profile("strandline")

pytest_plugins = ["strandline.testing.plugin"]
