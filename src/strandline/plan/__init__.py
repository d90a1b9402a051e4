"""Define pipelines as values, check them, and compile them to stages before anything runs."""
