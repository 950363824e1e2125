"""Toolsets: where tools come from and what they are wrapped in."""
