"""The tokenizer that the plug-ins are tried with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callsmith.adapters.hosted import HostedModel
from callsmith.engines.lru import IdentityLRU
from callsmith.models.weights.fetch import fetch
from tests.adapters.tiny_model import write_tokenizer


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(fetch("smollm2-135m"), path)
    return path


@pytest.fixture(scope="session")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def speaking(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """The tokenizer of a model that writes a format of our choosing."""

    def with_format(name: str) -> Any:
        monkeypatch.setenv("CALLSMITH_FORMAT", name)
        monkeypatch.setattr(HostedModel, "_known", IdentityLRU(8))
        return tokenizer

    return with_format
