"""Connectors: the source and the sink of each system, side by side."""
