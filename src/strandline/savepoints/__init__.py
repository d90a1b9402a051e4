"""Portable snapshots of a job's state: take, read, restore."""
