"""How Spark carries it: the machine it needs, and the path from a plan to a running query."""
