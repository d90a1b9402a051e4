"""Evaluate alarm rules over stored metrics and notify."""
