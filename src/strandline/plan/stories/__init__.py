"""The story format: parse, play and compare."""
