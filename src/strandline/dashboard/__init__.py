"""Jobs in the browser: whether each is well, and if not, why; kept on this machine and read from folders alone."""
