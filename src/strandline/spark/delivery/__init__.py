"""Deliver the output of a batch to its sinks, on the driver."""
