"""The same question in the words of other systems; each file runs in an environment of its own, without ours."""
