"""Models of other servers: OpenAI, Anthropic, Ollama, and whatever answers in one of their APIs."""
