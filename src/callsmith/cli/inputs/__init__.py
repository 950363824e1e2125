"""What commands read from their options: models, tools, MCP servers."""
