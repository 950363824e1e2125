"""Conversations: their state, their journal, and agents."""
