"""What a worker's first tasks set apart from Python's collector."""

import subprocess
import sys

import pytest

from strandline.spark.patches.switch import is_on

pytestmark = pytest.mark.skipif(not is_on("worker_gc"), reason="the patch is switched off")


def test_what_the_first_tasks_imported_is_not_collected_again_and_later_garbage_is() -> None:
    program = """
import gc, weakref
from strandline.spark.patches.worker_gc import freeze_imports
class Cycle: pass
for task in range(5):
    freeze_imports()
    print(gc.get_freeze_count())
thing = Cycle(); thing.me = thing; gone = weakref.ref(thing); del thing
gc.collect()
print(gone() is None)
"""
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    counts, collected = [int(count) for count in said[:5]], said[5]
    assert counts[0] > 1_000
    assert counts[2] == counts[4]
    assert collected == "True"
