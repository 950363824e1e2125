"""The MCP host, against servers small and real."""
