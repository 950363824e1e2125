"""Hugging Face checkpoint folders in process, by PyTorch, on CPU or GPU: `transformers:/models/Qwen2.5-1.5B-Instruct`."""

from callsmith.engines.transformers.engine import open

__all__ = ["open"]
