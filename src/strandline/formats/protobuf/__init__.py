"""Decode Protobuf records."""
