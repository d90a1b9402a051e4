"""Real services on this machine, without a container: a Kafka broker, a PostgreSQL server, a schema registry."""
