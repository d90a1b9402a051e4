"""Talk to a schema registry, and read its wire format."""
