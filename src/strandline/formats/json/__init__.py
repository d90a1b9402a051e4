"""Decode, encode and infer JSON records."""
