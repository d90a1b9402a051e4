"""How a job is: the golden numbers of every batch, kept beside its checkpoint, judged, and told to whoever asks."""
