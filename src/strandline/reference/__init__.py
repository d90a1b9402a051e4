"""The oracle: what every word means, said plainly in Python, one key and one element at a time."""
