"""Peer systems, each program written as its own documentation shows."""
