"""The same as `on_beam` by Prism, Beam's runner in Go: the first word is where it lies. Python is called back by it."""

import sys

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.prism_runner import PrismRunner

from benchmarks.peers.programs.on_beam import main

if __name__ == "__main__":
    main(PrismRunner(), PipelineOptions(["--prism_location", sys.argv[1], "--environment_type", "LOOPBACK"]))
