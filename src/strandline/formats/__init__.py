"""Bytes to columns and back: a record that does not decode is set aside on its own, with its reason."""
