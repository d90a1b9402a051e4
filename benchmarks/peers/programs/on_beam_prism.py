"""Run `on_beam` on Prism, Beam's Go runner: the first argument is its path. It calls back into Python."""

import sys

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.prism_runner import PrismRunner

from benchmarks.peers.programs.on_beam import main

if __name__ == "__main__":
    main(PrismRunner(), PipelineOptions(["--prism_location", sys.argv[1], "--environment_type", "LOOPBACK"]))
