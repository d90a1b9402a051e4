"""The same query in other systems; each file runs in its own environment, without Strandline."""
