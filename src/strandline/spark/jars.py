"""Keep `strandline.spark.jars` working: it moved to `strandline.spark.launch.jars` in 0.2.0, and goes in 0.4.0."""

import sys
import warnings

from strandline.spark.launch.jars import main, paths

__all__ = ["main", "paths"]

warnings.warn(
    "strandline.spark.jars is now strandline.spark.launch.jars; the old name goes in 0.4.0",
    DeprecationWarning,
    stacklevel=2,
)

if __name__ == "__main__":
    sys.exit(main())
