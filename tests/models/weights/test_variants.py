"""Which models a list of files holds, and which of them is taken."""

import pytest

from callsmith.models.weights.variants import (
    CHECKPOINT,
    Variant,
    VariantChoice,
    WeightFile,
    choose_variant,
    list_variants,
    read_label,
)

GB = 10**9


def variants(**sizes: float) -> list[Variant]:
    return [Variant(label, (WeightFile(f"m-{label}.gguf", int(size * GB)),)) for label, size in sizes.items()]


def choose(room: float | None, **sizes: float) -> VariantChoice:
    return choose_variant(variants(**sizes), None if room is None else int(room * GB))


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("Qwen3-4B-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-0.5b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("Qwen3-4B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("llama-2-7b.Q4_0.gguf", "Q4_0"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("m-IQ2_XXS.gguf", "IQ2_XXS"),
        ("m.i1-IQ4_NL.gguf", "IQ4_NL"),
        ("model_q8_0.gguf", "Q8_0"),
        ("BF16/m-00001-of-00002.gguf", "BF16"),
        ("m-f16.gguf", "F16"),
        ("Qwen3-4B.gguf", ""),
        ("model.gguf", ""),
        ("Q4_K_M-imat.gguf", "Q4_K_M"),
    ],
)
def test_the_quantisation_is_in_the_name_or_in_that_of_the_folder(path: str, label: str):
    assert read_label(path) == label


def test_the_parts_of_a_model_that_was_split_are_one_and_what_belongs_to_a_model_is_none():
    names = [
        "m-Q8_0-00002-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf", "m-Q4_K_M.gguf", "mmproj-m-f16.gguf", "m.imatrix.gguf",
        "README.md", "BF16/m-BF16-00001-of-00003.gguf", "BF16/m-BF16-00003-of-00003.gguf",
    ]  # fmt: skip
    found, lacking = list_variants(WeightFile(name, 10) for name in names)
    assert [(variant.label, [file.path for file in variant.files]) for variant in found] == [
        ("Q4_K_M", ["m-Q4_K_M.gguf"]),
        ("Q8_0", ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"]),
    ]
    assert lacking == ["BF16/m-BF16: part 2 of 3 is missing"]


def test_a_split_into_none_or_into_more_than_there_are_is_none():
    found, lacking = list_variants(WeightFile(name, 1) for name in ("m-00001-of-00000.gguf", "n-00001-of-99999.gguf"))
    assert found == []
    assert len(lacking) == 2


def test_a_checkpoint_is_what_is_at_the_top_of_a_repository_and_needs_a_configuration():
    names = ["config.json", "tokenizer.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    beside = ["consolidated.safetensors", "original/model.safetensors", "onnx/config.json", "pytorch_model.bin", "a.py"]
    (found,), _ = list_variants(WeightFile(name, 10) for name in (*names, *beside))
    assert found.label == CHECKPOINT
    assert sorted(file.path for file in found.files) == sorted(names)
    assert list_variants([WeightFile("adapter_model.safetensors", 1), WeightFile("model.safetensors", 1)]) == ([], [])


def test_the_usual_quantisation_is_taken_if_it_fits_and_the_reason_is_told():
    choice = choose(16, Q8_0=4.3, Q4_K_M=2.5, BF16=8.0)
    assert choice.variant.label == "Q4_K_M"
    assert choice.reason == "the usual one; 16.0 GB of memory are free"
    assert [other.label for other in choice.others] == ["Q8_0", "BF16"]


@pytest.mark.parametrize(
    ("room", "label"), [(2.9, "Q3_K_M"), (2.0, "Q2_K"), (0.5, "Q2_K"), (3.0, "Q4_K_M"), (None, "Q4_K_M"), (100, "Q4_K_M")]
)
def test_in_less_memory_it_is_the_largest_that_fits_and_in_none_the_smallest(room: float | None, label: str):
    choice = choose(room, Q8_0=4.3, Q4_K_M=2.5, Q3_K_M=2.0, Q2_K=1.5)
    assert choice.variant.label == label
    if room == 0.5:
        assert choice.reason == "none fits: it needs about 1.8 GB, and 500 MB of memory are free"


def test_without_the_usual_one_it_is_the_largest_of_at_most_eight_bits_that_fits():
    assert choose(100, BF16=8.0, Q8_0=4.3, Q6_K=3.3).variant.label == "Q8_0"
    assert choose(4.5, BF16=8.0, Q8_0=4.3, Q6_K=3.3).variant.label == "Q6_K"
    assert choose(100, BF16=8.0, F32=16.0).variant.label in ("BF16", "F32")


def test_gguf_comes_before_a_checkpoint():
    checkpoint = Variant(CHECKPOINT, (WeightFile("model.safetensors", GB),))
    assert choose_variant([checkpoint, *variants(Q8_0=4.3)], 100 * GB).variant.label == "Q8_0"
    assert choose_variant([checkpoint], 100 * GB).variant is checkpoint
