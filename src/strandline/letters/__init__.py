"""Dead letters after the job: where they are kept, and how they go back to where they came from, once."""
