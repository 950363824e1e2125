"""Cases: questions whose right tool calls are known."""
