"""Formats: convert bytes to columns and back; each record that cannot be decoded becomes a dead letter."""
