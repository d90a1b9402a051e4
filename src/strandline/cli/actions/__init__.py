"""Implement the commands; each module is imported when its command runs."""
