"""What callsmith itself offers on a bus and uses of one: models, tool calls, a corpus, and the tools that capabilities make."""
