"""Build joins of streams in the fluent API."""
