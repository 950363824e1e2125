"""PyTorch, transformers and tokenizers, without types: they are large, and only there where the extra is installed."""

from importlib import import_module
from typing import Any, TypeAlias

from callsmith.core.errors import MissingExtra

Tensor: TypeAlias = Any  # a torch.Tensor
LanguageModel: TypeAlias = Any  # a transformers.PreTrainedModel that predicts the next token


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name not in ("torch", "transformers", "tokenizers", "safetensors"):
            raise
        raise MissingExtra("transformers", "running Hugging Face checkpoints in process") from missing


torch: Any = _library("torch")
transformers: Any = _library("transformers")
tokenizers: Any = _library("tokenizers")
