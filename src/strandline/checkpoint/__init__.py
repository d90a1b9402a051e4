"""Manage the folder of a job: identity, logs, copies, examination and repair."""
