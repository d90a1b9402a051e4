"""Valkey and Redis sink: the latest answer under each key, never an older one over a newer."""

from strandline.connectors.valkey.lookup import ValkeyLookup, lookup_valkey
from strandline.connectors.valkey.sink_definition import Valkey, valkey

__all__ = ["Valkey", "ValkeyLookup", "lookup_valkey", "valkey"]
