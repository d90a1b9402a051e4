"""Compare two definitions of a pipeline and decide what their state allows."""
