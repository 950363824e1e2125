"""Reading: a model's text, as it streams, to events."""
