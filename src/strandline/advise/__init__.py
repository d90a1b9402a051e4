"""Recommend settings for a user's data, and whether to stream it at all, from a bounded sample."""
