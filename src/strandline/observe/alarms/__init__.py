"""Evaluate alarm rules over stored metrics, and send notifications."""
