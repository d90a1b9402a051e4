"""Benchmark of interval joins against Spark's stream-stream join."""
