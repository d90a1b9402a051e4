"""The words of the Dataflow model as frozen values: what, where, when and how, without a player."""
