"""Combine, merge and read aggregates over columns."""
