"""Export metrics to Prometheus, OpenTelemetry and JSON lines, and collect them from Spark queries."""
