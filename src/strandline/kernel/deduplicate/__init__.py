"""Keep the first or last element of each key: the deduplication operator."""
