"""Declare the commands of `strandline` and their options."""
