"""Which settings a user's own data ask for, and whether they should stream at all: computed from a bounded sample."""
