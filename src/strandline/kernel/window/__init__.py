"""The window operator: assign windows, fire triggers, emit panes."""
