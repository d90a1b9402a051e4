"""Define the semantics of the model in plain Python, one key and one element at a time: the oracle of the kernel."""
