"""Toolsets: Python functions, MCP servers, and wrappers around toolsets."""
