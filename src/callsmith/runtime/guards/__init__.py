"""Guards: a safety net for small models."""
