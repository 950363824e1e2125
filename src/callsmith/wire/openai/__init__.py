"""OpenAI's dialects: Chat Completions and Responses."""
