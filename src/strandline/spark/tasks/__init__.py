"""Code that runs in Spark tasks: decode, prepare, step, transport."""
