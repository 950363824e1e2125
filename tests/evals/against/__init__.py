"""A server held against a reference."""
