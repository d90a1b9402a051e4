"""Run real services on this machine without a container: a Kafka broker, PostgreSQL, Valkey and a schema registry."""
