"""Prompts: a request and a chat template to the text an engine continues."""
