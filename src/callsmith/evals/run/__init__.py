"""Asks models the cases, and keeps what they answered."""
