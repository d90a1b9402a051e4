"""The command line: `strandline` and its words."""
