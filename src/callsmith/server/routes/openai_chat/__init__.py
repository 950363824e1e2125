"""OpenAI's chat completions, and the list of models."""

from callsmith.server.routes.openai_chat.endpoints import routes

__all__ = ["routes"]
