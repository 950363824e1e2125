"""API dialects, both directions, pure."""
