"""The demo behind `./demo`."""
