"""Export metrics: Prometheus, OpenTelemetry, JSON lines, Spark listeners."""
