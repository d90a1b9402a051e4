"""Dashboard: show in the browser whether each job is fine and if not why; local, and read from job folders only."""
