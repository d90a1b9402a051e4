"""Run `on_pyflink` in thread mode: Python as a thread inside the JVM."""

import os
import sysconfig

from benchmarks.peers.programs.on_pyflink import main

if __name__ == "__main__":
    # The Python inside the JVM is the system's and does not know this environment.
    known = (sysconfig.get_path("platlib"), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, known))
    main("thread")
