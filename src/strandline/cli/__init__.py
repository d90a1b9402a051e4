"""Implement the command line `strandline`."""
