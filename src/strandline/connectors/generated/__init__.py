"""Generated stream source: a seeded stream with configurable disorder, lateness, duplicates and broken records."""

from strandline.connectors.generated.source import Generated, generator

__all__ = ["Generated", "generator"]
