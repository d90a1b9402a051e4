"""Observe a job: store the golden numbers of every batch beside its checkpoint, judge them, and export them."""
