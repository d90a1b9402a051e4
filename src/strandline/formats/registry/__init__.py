"""Talk to a schema registry and judge compatibility."""
