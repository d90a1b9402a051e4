"""What each command does; loaded when the command runs."""
