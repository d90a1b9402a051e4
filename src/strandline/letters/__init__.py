"""Dead letters after the job: store them, and redrive their records to the sources, once."""
