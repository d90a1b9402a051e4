"""SQL database sinks: the shared sink, and a dialect per database."""
