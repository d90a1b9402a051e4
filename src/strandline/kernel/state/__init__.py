"""Keep the state of a key group: slices, their deltas, an index, export and migrations."""
