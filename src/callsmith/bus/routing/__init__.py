"""Which provider answers a call."""
