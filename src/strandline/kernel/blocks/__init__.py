"""Encode frames as checksummed blocks, and hash, sort and join their columns."""
