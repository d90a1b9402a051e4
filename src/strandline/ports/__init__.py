"""Define the protocols that sources, sinks and codecs implement. Nothing here imports Spark."""
