"""Folders that are no checkpoint, or a broken one, are refused with a plain reason."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the transformers engine has an environment of its own: make test-torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

from callsmith.core.errors import Unavailable, UsageError
from callsmith.engines import open_engine
from callsmith.engines.transformers.checkpoint import check_folder

pytestmark = [pytest.mark.torch, pytest.mark.weights]


@pytest.fixture
def small(folder: Path, tmp_path: Path) -> Path:
    """The checkpoint, with links instead of the large file."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        if file.suffix == ".safetensors":
            (copy / file.name).symlink_to(file)
        else:
            shutil.copy(file, copy)
    return copy


def change(folder: Path, **fields: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))


def refusal(folder: Path, **options: object) -> str:
    with pytest.raises(Unavailable) as refused:
        open_engine(f"transformers:{folder}", device="cpu", context=64, live=1, **options)
    return f"{refused.value} {refused.value.hint}"


def test_a_whole_folder_has_nothing_wrong(small: Path) -> None:
    check_folder(small)


def test_no_folder(tmp_path: Path) -> None:
    assert "there is no checkpoint folder" in refusal(tmp_path / "nothing")
    assert "llama:" in refusal(tmp_path / "weights.gguf")


def test_no_configuration_or_a_broken_one(small: Path) -> None:
    (small / "config.json").write_text("{")
    assert "no JSON" in refusal(small)
    (small / "config.json").write_text("[]")
    assert "no JSON object" in refusal(small)
    (small / "config.json").unlink()
    assert "no config.json" in refusal(small)


def test_no_tokenizer(small: Path) -> None:
    (small / "tokenizer.json").unlink()
    assert "no tokenizer" in refusal(small)


def test_a_broken_tokenizer(small: Path) -> None:
    (small / "tokenizer.json").write_text('{"version": "1.0"}')
    assert "cannot be loaded" in refusal(small)


def test_an_architecture_that_transformers_does_not_know(small: Path) -> None:
    change(small, model_type="nobody_knows", architectures=["NobodyKnowsForCausalLM"])
    assert "nobody_knows" in refusal(small)


def test_code_of_a_checkpoint_is_never_run(small: Path) -> None:
    change(small, model_type="own_code", auto_map={"AutoModelForCausalLM": "modeling.Model", "AutoConfig": "modeling.Config"})
    (small / "modeling.py").write_text("raise SystemExit('run')")
    assert "never run" in refusal(small)


def test_pickled_weights_are_not_read(small: Path) -> None:
    (small / "model.safetensors").unlink()
    assert "model.safetensors is expected" in refusal(small)
    (small / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    assert "pickled" in refusal(small)


def test_missing_shards_are_named(small: Path) -> None:
    index = {"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (small / "model.safetensors.index.json").write_text(json.dumps(index))
    shutil.copy(small / "tokenizer.json", small / "model-00001-of-00002.safetensors")
    assert "model-00002-of-00002.safetensors missing" in refusal(small)


def test_weights_that_are_cut_off(small: Path) -> None:
    whole = (small / "model.safetensors").resolve()
    (small / "model.safetensors").unlink()
    with whole.open("rb") as file:
        (small / "model.safetensors").write_bytes(file.read(1 << 20))
    assert "cannot be loaded" in refusal(small)


def test_layers_that_cannot_be_cached_cell_by_cell(small: Path) -> None:
    change(small, model_type="qwen3_next", architectures=["Qwen3NextForCausalLM"], layer_types=["linear_attention"] * 30)
    assert "linear_attention" in refusal(small)


def test_options_that_make_no_sense(small: Path) -> None:
    for options, complaint in (({"live": 0}, "at least 1"), ({"device": "abacus"}, "abacus"), ({"dtype": "roman"}, "roman")):
        with pytest.raises(UsageError, match=complaint):
            open_engine(f"transformers:{small}", **{"device": "cpu", **options})
