"""The protocols that sources, sinks and codecs implement; below Spark."""
