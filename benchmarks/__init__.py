"""Benchmarks with checked results; part of the checkout, not of the package."""
