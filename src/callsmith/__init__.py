"""callsmith: any model, any client, every tool call valid."""
