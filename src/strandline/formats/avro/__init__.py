"""Decode and encode Avro records."""
