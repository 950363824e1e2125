"""Names of models on a hub: every way in which people write them means the same, and nothing else is one."""

import pytest

from callsmith.models.remote.providers import parse_spec
from callsmith.models.weights.hub_names import HubName, is_hub_address, parse
from callsmith.models.weights.variants import CHECKPOINT


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("hf:org/repo", HubName("org/repo")),
        ("org/repo", HubName("org/repo")),
        ("https://huggingface.co/org/repo", HubName("org/repo")),
        ("https://huggingface.co/org/repo/", HubName("org/repo")),
        ("hf.co/org/repo:latest", HubName("org/repo")),
        ("hf:org/repo:Q4_K_M", HubName("org/repo", "Q4_K_M")),
        ("org/repo:Q4_K_M", HubName("org/repo", "Q4_K_M")),
        ("hf.co/org/repo:Q4_K_M", HubName("org/repo", "Q4_K_M")),
        ("huggingface.co/org/repo:UD-Q4_K_XL", HubName("org/repo", "UD-Q4_K_XL")),
        ("hf:org/repo/file.gguf", HubName("org/repo", file="file.gguf")),
        ("org/repo/sub/model-q4.gguf", HubName("org/repo", file="sub/model-q4.gguf")),
        ("hf:org/repo:sub/model-q4.gguf", HubName("org/repo", file="sub/model-q4.gguf")),
        ("https://huggingface.co/org/repo/resolve/main/m.gguf?download=true", HubName("org/repo", file="m.gguf")),
        ("https://huggingface.co/org/repo/blob/v1/m.gguf", HubName("org/repo", file="m.gguf", revision="v1")),
        ("https://huggingface.co/org/repo/tree/v1", HubName("org/repo", revision="v1")),
        ("hf:org/repo@main", HubName("org/repo")),
        ("hf:org/repo@v1.0", HubName("org/repo", revision="v1.0")),
        ("hf:org/repo@v1.0:Q8_0", HubName("org/repo", "Q8_0", revision="v1.0")),
        ("hf:org/repo:Q8_0@refs/pr/7", HubName("org/repo", "Q8_0", revision="refs/pr/7")),
        ("hf:org/repo/m.gguf@abc", HubName("org/repo", file="m.gguf", revision="abc")),
        ("transformers:org/repo", HubName("org/repo", CHECKPOINT)),
        ("transformers:hf:org/repo@v1", HubName("org/repo", CHECKPOINT, revision="v1")),
    ],
)
def test_every_spelling_names_its_model(spec: str, name: HubName):
    parsed = parse(spec)
    assert parsed is not None
    assert (parsed.repo, parsed.label, parsed.file, parsed.revision) == (name.repo, name.label, name.file, name.revision)


@pytest.mark.parametrize(
    "spec",
    [
        "toy", "a/b.gguf", "org/repo/../x.gguf", "/org/repo/x.gguf", "hf:repo:x.gguf", "hf:repo", "hf:", "hf:org/repo@a@b",
        "hf:org/repo@v1:Q4_K_M@v2", "transformers:/models/x", "http://localhost:8000/v1", "https://example.com/org/repo",
        "https://huggingface.co/org", "./org/repo", "org/repo/", "org//repo", "hf:org/repo:" + "Q" * 600,
    ],
)  # fmt: skip
def test_nothing_else_is_one(spec: str):
    assert parse(spec) is None


def test_the_address_of_a_page_is_no_server_and_that_of_a_server_no_page():
    assert parse_spec("https://huggingface.co/org/repo") is None
    assert is_hub_address("https://hf.co/org/repo:Q4_K_M")
    assert not is_hub_address("https://example.com/org/repo")
    assert parse_spec("https://example.com/v1#model") is not None


def test_a_name_is_written_as_it_may_be_written():
    for spec in ("org/repo", "org/repo:Q8_0", "org/repo:Q8_0@v1", "org/repo/a/b.gguf@v1"):
        assert str(parse(f"hf:{spec}")) == spec
