"""Measure, store and read the metrics of every batch."""
