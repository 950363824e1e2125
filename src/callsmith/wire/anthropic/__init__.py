"""Anthropic's dialect: Messages."""
