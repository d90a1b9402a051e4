"""Delta Lake connector: a batch is one commit that contains its transaction ids and its ledger entry."""

from strandline.connectors.delta.sink import Delta, delta

__all__ = ["Delta", "delta"]
