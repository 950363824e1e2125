"""How messages come from MCP servers and go to them: processes, HTTP, and bounds on what is sent."""
