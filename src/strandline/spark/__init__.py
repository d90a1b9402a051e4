"""Run pipelines on Spark: start sessions, translate plans, deliver batches."""
