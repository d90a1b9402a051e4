"""Run `on_pyflink` in thread mode: Python as a thread inside the JVM."""

import os
import sysconfig

from benchmarks.peers.programs.on_pyflink import main

if __name__ == "__main__":
    # The Python inside the JVM is that of the machine, and does not know of the environment that this one runs in.
    known = (sysconfig.get_path("platlib"), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, known))
    main("thread")
