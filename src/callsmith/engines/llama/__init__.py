"""GGUF models in process, by llama.cpp: `llama:/models/qwen.gguf`."""

from callsmith.engines.llama.engine import open

__all__ = ["open"]
