"""Provide streams for Spark: heartbeat, paused sources, files read in tasks, bounded extents."""
