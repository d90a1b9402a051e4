"""SQL databases as sinks: what they have in common is said once, and each has a small dialect of its own."""
