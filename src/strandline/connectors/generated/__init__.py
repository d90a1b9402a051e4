"""A seeded stream with every trouble a real one has, each by a knob: what pipelines are tried on."""

from strandline.connectors.generated.source import Generated, generator

__all__ = ["Generated", "generator"]
