"""One system a file: its source and its sink side by side."""
