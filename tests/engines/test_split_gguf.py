"""Files that belong together by their names."""

import pytest

from callsmith.engines.split_gguf import choose_projector

GEMMA = "gemma-3-4b-it-Q4_K_M.gguf"


@pytest.mark.parametrize(
    ("model", "others", "chosen"),
    [
        (GEMMA, ["gemma-3-4b-it-Q8_0.gguf", "mmproj-F32.gguf", "mmproj-F16.gguf", "mmproj-BF16.gguf"], "mmproj-F16.gguf"),
        (GEMMA, ["mmproj-model-f16.gguf"], "mmproj-model-f16.gguf"),
        (GEMMA, ["gemma-3-4b-it-mmproj-Q8_0.gguf"], "gemma-3-4b-it-mmproj-Q8_0.gguf"),
        (GEMMA, ["Qwen2.5-VL-3B-Q4_0.gguf", "mmproj-gemma-3-4b-it-f16.gguf"], "mmproj-gemma-3-4b-it-f16.gguf"),
        (GEMMA, ["Qwen2.5-VL-3B-Q4_0.gguf", "mmproj-Qwen2.5-VL-3B-f16.gguf"], ""),
        (GEMMA, ["Qwen2.5-VL-3B-Q4_0.gguf", "mmproj-F16.gguf"], ""),
        ("big-Q4_0-00001-of-00002.gguf", ["big-Q4_0-00002-of-00002.gguf", "mmproj-F16.gguf"], "mmproj-F16.gguf"),
        (GEMMA, ["readme.md", "mmproj.txt"], ""),
    ],
)
def test_the_projector_of_a_model_is_found_by_its_name_and_none_of_another_model(model: str, others: list[str], chosen: str):
    assert choose_projector(model, [model, *others]) == chosen
