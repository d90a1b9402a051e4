"""Join rows of two streams by key and event time: the interval join operator."""
