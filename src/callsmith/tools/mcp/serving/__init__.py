"""Our tools, for other MCP hosts."""
