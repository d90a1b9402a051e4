"""Benchmark of `deduplicate` against Spark's `dropDuplicatesWithinWatermark`."""
