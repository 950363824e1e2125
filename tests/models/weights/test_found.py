"""What other programs have put on this machine, in folders as they write them: listed, named as people name it, and opened."""

import json
import os
from pathlib import Path

import pytest

from callsmith.core.errors import CallsmithError, Unavailable, UnknownName, UsageError
from callsmith.core.ports import model_info
from callsmith.models.opening import Options, find_weights, open_model
from callsmith.models.remote import providers
from callsmith.models.remote.providers import parse_spec
from callsmith.models.weights.fetch import locate
from callsmith.models.weights.found import FoundModel, find_model, find_models, find_ollama_projector
from tests.folders_of_others import (
    CONTENT,
    write_cached,
    write_flat,
    write_lm_studio,
    write_ollama,
)
from tests.small import THREADS, shallow_file
from tests.tiny_projector import write_projector

pytestmark = pytest.mark.usefixtures("home")


def listed() -> dict[str, str]:
    return {model.name: model.program for model in find_models()[0]}


def reasons() -> dict[str, str]:
    return {model.name: model.reason for model in find_models()[1]}


def find(name: str) -> FoundModel:
    found = find_model(name)
    assert found is not None
    return found


def test_a_home_without_such_programs_has_none():
    assert find_models() == ([], [])
    with pytest.raises(UnknownName, match="unknown model 'qwen3'"):
        locate("qwen3")


def test_models_of_ollama_are_named_as_ollama_names_them(home: Path):
    root = home / ".ollama" / "models"
    blob = write_ollama(root, "registry.ollama.ai/library/qwen3/4b")
    write_ollama(root, "registry.ollama.ai/library/llama3.2/latest", CONTENT + b"llama")
    write_ollama(root, "registry.ollama.ai/somebody/tuned/v2", CONTENT + b"tuned")
    write_ollama(root, "hf.co/org/repo-GGUF/Q4_K_M", CONTENT + b"hub")
    assert listed() == dict.fromkeys(["qwen3:4b", "llama3.2:latest", "somebody/tuned:v2", "hf.co/org/repo-GGUF:Q4_K_M"], "Ollama")
    assert locate("qwen3:4b") == locate("ollama:qwen3:4b") == blob
    assert locate("llama3.2").read_bytes() == locate("ollama:llama3.2:latest").read_bytes() == CONTENT + b"llama"
    assert locate("somebody/tuned:v2").read_bytes() == CONTENT + b"tuned"
    for spec in ("hf.co/org/repo-GGUF:Q4_K_M", "hf:org/repo-GGUF", "org/repo-GGUF:q4_k_m", "ollama:hf.co/org/repo-GGUF:Q4_K_M"):
        assert locate(spec).read_bytes() == CONTENT + b"hub"
    assert find("qwen3:4b").size == len(CONTENT)


def test_the_folder_of_ollama_may_be_elsewhere(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "elsewhere"))
    write_ollama(home / "elsewhere", "registry.ollama.ai/library/qwen3/4b")
    assert listed() == {"qwen3:4b": "Ollama"}


@pytest.mark.parametrize("width", [576, 64])
async def test_a_model_of_ollama_reads_images_by_the_projector_that_its_manifest_names(home: Path, width: int):
    pytest.importorskip("xllamacpp")
    write_projector(home / "projector.gguf", width)
    write_ollama(home / ".ollama" / "models", "registry.ollama.ai/library/blind/7b", CONTENT)
    write_ollama(home / ".ollama" / "models", "registry.ollama.ai/library/llava/7b", shallow_file(), home / "projector.gguf")
    blob = locate("llava:7b")
    assert find_ollama_projector(locate("blind:7b")) is None
    assert find_ollama_projector(home / "projector.gguf") is None
    found = find_ollama_projector(blob)
    assert found is not None
    assert found.read_bytes() == (home / "projector.gguf").read_bytes()
    model = open_model("llava:7b", Options(context=256, threads=THREADS))
    assert model_info(model).reads_images == (width == 576)  # one that does not fit keeps nobody from text
    await model.close()


def test_what_only_ollama_can_run_is_listed_with_the_reason(home: Path):
    root = home / ".ollama" / "models"
    write_ollama(root, "registry.ollama.ai/library/gpt-oss/120b-cloud", None)
    write_ollama(root, "registry.ollama.ai/library/gone/latest").unlink()
    write_ollama(root, "registry.ollama.ai/library/tensors/latest", b"not GGUF")
    assert listed() == {}
    assert {name: reason.split(":")[0] for name, reason in reasons().items()} == {
        "gpt-oss:120b-cloud": "it has no GGUF file",
        "gone:latest": "its weights are missing",
        "tensors:latest": "its weights are no GGUF file",
    }
    with pytest.raises(UsageError, match=r"Ollama has gpt-oss:120b-cloud, but it has no GGUF file"):
        locate("gpt-oss:120b-cloud")


def test_a_model_of_ollama_is_that_of_its_server_while_one_runs_and_else_its_weights(home: Path, monkeypatch: pytest.MonkeyPatch):
    blob = write_ollama(home / ".ollama" / "models", "registry.ollama.ai/library/qwen3/4b")
    monkeypatch.setattr(providers, "_listens", lambda url: True)
    assert parse_spec("ollama:qwen3:4b") is not None
    monkeypatch.setattr(providers, "_listens", lambda url: False)
    assert parse_spec("ollama:qwen3:4b") is None
    assert find_weights("ollama:qwen3:4b") == find_weights("qwen3:4b") == ("llama", str(blob))
    assert parse_spec("ollama:qwen3:8b") is not None
    monkeypatch.setenv("OLLAMA_HOST", "gpu1:11434")
    assert parse_spec("ollama:qwen3:4b") is not None


def test_models_of_lm_studio_are_named_as_on_the_hub(home: Path):
    write_lm_studio(home / ".lmstudio", "lmstudio-community/Qwen3-4B-GGUF", "Qwen3-4B-Q4_K_M.gguf", "mmproj-Qwen3-4B.gguf")
    parts = [f"Big-Q8_0-0000{number}-of-00002.gguf" for number in (1, 2)]
    (folder,) = write_lm_studio(home / ".lmstudio", "org/Big-GGUF", *parts)
    write_lm_studio(home / ".cache" / "lm-studio", "org/Old-GGUF", "old.gguf")
    write_lm_studio(home / ".lmstudio", "mlx-community/Qwen3-4bit", "model.safetensors", "config.json")
    assert listed() == dict.fromkeys(
        ["lmstudio-community/Qwen3-4B-GGUF:Q4_K_M", "org/Big-GGUF:Q8_0", "org/Old-GGUF/old.gguf"], "LM Studio"
    )
    assert reasons() == {"mlx-community/Qwen3-4bit": "it is no GGUF file, but made for another engine"}
    for spec in ("lmstudio-community/Qwen3-4B-GGUF", "hf:lmstudio-community/Qwen3-4B-GGUF:Q4_K_M"):
        assert locate(spec).name == "Qwen3-4B-Q4_K_M.gguf"
    assert locate("org/Big-GGUF") == folder / parts[0]
    assert find("org/Big-GGUF").size == 2 * len(CONTENT)
    assert locate("org/Old-GGUF/old.gguf").is_file()
    (folder / parts[1]).unlink()
    assert reasons()["org/Big-GGUF"] == "Big-Q8_0: part 2 of 2 is missing"
    with pytest.raises(CallsmithError, match="part 2 of 2 is missing"):
        locate("lmstudio:org/Big-GGUF")


def test_the_folders_of_lm_studio_may_be_elsewhere_and_be_links(home: Path):
    studio = home / "apps" / "studio"
    (studio).mkdir(parents=True)
    (home / ".lmstudio-home-pointer").write_text(f"{studio}\n")
    (studio / "settings.json").write_text(json.dumps({"downloadsFolder": str(home / "disk")}))
    (real,) = write_lm_studio(home / "other", "org/A-GGUF", "A-Q4_0.gguf")
    (home / "disk" / "org").mkdir(parents=True)
    (home / "disk" / "org" / "A-GGUF").symlink_to(real)
    assert listed() == {"org/A-GGUF:Q4_0": "LM Studio"}


def test_models_of_older_versions_of_llama_cpp_are_named_by_the_manifests_beside_them(home: Path):
    cache = home / ".cache" / "llama.cpp"
    write_flat(cache, "ggml-org", "Qwen3_4B-GGUF", "Q4_K_M", "Qwen3_4B-Q4_K_M.gguf")
    write_flat(cache, "unsloth", "Big-GGUF", "Q8_0", "Big-Q8_0-00001-of-00002.gguf", "Big-Q8_0-00002-of-00002.gguf")
    (cache / "mine.gguf").write_bytes(CONTENT)
    assert listed() == dict.fromkeys(["ggml-org/Qwen3_4B-GGUF:Q4_K_M", "mine.gguf", "unsloth/Big-GGUF:Q8_0"], "llama.cpp")
    assert locate("ggml-org/Qwen3_4B-GGUF").name == "ggml-org_Qwen3_4B-GGUF_Qwen3_4B-Q4_K_M.gguf"
    assert locate("hf:unsloth/Big-GGUF:Q8_0").name == "unsloth_Big-GGUF_Big-Q8_0-00001-of-00002.gguf"
    assert locate("llama.cpp:mine.gguf") == cache / "mine.gguf"


def test_newer_versions_of_llama_cpp_have_the_cache_of_the_hub_or_one_of_that_form(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LLAMA_CACHE", str(home / "llama"))
    write_cached(home / "llama", "org/A-GGUF", {"A-Q4_0.gguf": CONTENT})
    write_flat(home / "llama", "org", "B-GGUF", "Q4_0", "B-Q4_0.gguf")
    assert listed() == {"org/A-GGUF:Q4_0": "llama.cpp", "org/B-GGUF:Q4_0": "llama.cpp"}


def test_the_cache_of_the_hub_holds_language_models_in_every_revision(home: Path):
    cache = home / ".cache" / "huggingface" / "hub"
    files = {"m-Q4_K_M.gguf": CONTENT, "m-Q8_0.gguf": CONTENT * 2, "README.md": b"#"}
    snapshot = write_cached(cache, "org/repo", files)
    write_cached(cache, "org/repo", {"m-Q4_K_M.gguf": CONTENT + b"old"}, revision="v1")
    chat = {"config.json": b'{"architectures": ["Qwen2ForCausalLM"]}', "model.safetensors": b"x", "tokenizer.json": b"{}"}
    folder = write_cached(cache, "org/chat", chat)
    write_cached(cache, "org/embed", {**chat, "config.json": b'{"architectures": ["BertModel"]}'})
    write_cached(cache, "org/torn", {"config.json": chat["config.json"], "model-00001-of-00002.safetensors": b"x",
        "model.safetensors.index.json": b'{"weight_map": {"a": "model-00001-of-00002.safetensors", '
        b'"b": "model-00002-of-00002.safetensors"}}'})  # fmt: skip
    (cache / "datasets--org--data" / "snapshots").mkdir(parents=True)
    assert list(listed()) == ["org/chat", "org/repo:Q4_K_M", "org/repo:Q8_0", "org/repo@v1:Q4_K_M"]
    assert reasons() == {"org/torn": "model-00002-of-00002.safetensors is missing"}
    assert locate("org/repo") == snapshot / "m-Q4_K_M.gguf"
    assert locate("hf:org/repo@v1").read_bytes() == CONTENT + b"old"
    assert find_weights("org/chat") == ("transformers", str(folder))
    assert locate("transformers:org/chat") == folder
    for path in (cache / "models--org--repo").rglob("*"):
        if path.is_symlink():
            path.resolve().unlink(missing_ok=True)
    assert list(listed()) == ["org/chat"]  # links to nothing


def test_the_same_model_of_two_programs_is_one_and_two_of_one_name_are_told_apart(home: Path):
    write_lm_studio(home / ".lmstudio", "org/A-GGUF", "A-Q4_0.gguf")
    cached = write_cached(home / ".cache" / "huggingface" / "hub", "org/A-GGUF", {"A-Q4_0.gguf": CONTENT})
    assert locate("hf:org/A-GGUF") == cached / "A-Q4_0.gguf"
    assert locate("lmstudio:org/A-GGUF").is_relative_to(home / ".lmstudio")
    write_ollama(home / ".ollama" / "models", "registry.ollama.ai/library/twin/latest")
    (home / ".cache" / "llama.cpp").mkdir(parents=True)
    os.link(locate("twin"), home / ".cache" / "llama.cpp" / "twin:latest.gguf")
    assert find("twin").program == "Ollama"
    write_ollama(home / ".ollama" / "models", "registry.ollama.ai/org/A-GGUF/latest")
    with pytest.raises(UsageError, match=r"may be one of several: org/A-GGUF:latest of Ollama, .*ollama:org/a-gguf"):
        find_model("org/A-GGUF")
    assert find("ollama:org/A-GGUF").program == "Ollama"


def test_a_folder_of_ones_own_is_taken_with_what_is_in_it(tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(Unavailable, match="without a model"):
        locate(str(folder))
    for number in (1, 2):
        (folder / f"m-0000{number}-of-00002.gguf").write_bytes(CONTENT)
    assert find_weights(str(folder)) == ("llama", str(folder / "m-00001-of-00002.gguf"))
    (folder / "m-00002-of-00002.gguf").unlink()
    with pytest.raises(Unavailable, match="part 2 of 2 is missing"):
        locate(str(folder))
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text("{}")
    assert find_weights(str(folder)) == ("transformers", str(folder))
