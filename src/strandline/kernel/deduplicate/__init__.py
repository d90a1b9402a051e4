"""The deduplication operator: keep the first or last element of each key."""
