"""Observe a job: store the golden metrics of every batch beside its checkpoint, judge them, and export them."""
