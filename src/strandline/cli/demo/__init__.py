"""Implement the demo, `./demo`."""
