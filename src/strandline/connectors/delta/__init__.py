"""Tables of Delta Lake: a batch is one commit, with its transaction ids and its ledger entry in it."""

from strandline.connectors.delta.sink import Delta, delta

__all__ = ["Delta", "delta"]
