"""Ask lookup tables from tasks: distinct keys of a batch, cached, pinned, in bounded requests."""
