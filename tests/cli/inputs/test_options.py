"""Options that several commands have."""

import pytest

from callsmith.cli.inputs.options import alias_of


@pytest.mark.parametrize(
    ("spec", "alias"),
    [
        ("smollm2-135m", "smollm2-135m"),
        ("/models/mine.gguf", "mine"),
        ("llama:/models/mine.gguf", "mine"),
        ("hf:org/repo:file.gguf", "file"),
        ("scripted:Hello", "scripted"),
        ("completions:http://localhost:8080#qwen3", "qwen3"),
    ],
)
def test_a_model_is_called_by_its_name_its_file_or_its_engine(spec: str, alias: str) -> None:
    assert alias_of(spec) == alias
