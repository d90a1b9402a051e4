"""The peers: what others would use for the same, each written as its own documentation would have it."""
