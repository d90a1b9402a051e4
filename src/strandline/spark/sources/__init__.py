"""Streams that Spark reads for us: heartbeats, files, topics, paused sources."""
