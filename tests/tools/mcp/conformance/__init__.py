"""The client half of the MCP conformance suite."""
