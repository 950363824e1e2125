"""Servers that continue text: llama-server, vLLM and SGLang, each by its own API for raw completion."""

from callsmith.engines.completions.engine import CompletionsEngine, open

__all__ = ["CompletionsEngine", "open"]
