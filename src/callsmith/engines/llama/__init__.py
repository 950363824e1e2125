"""GGUF models in process, by llama.cpp: `llama:/models/qwen.gguf`."""

from callsmith.engines.llama.engine import describe, open

__all__ = ["describe", "open"]
