"""A repository of safetensors, on a hub on this machine, is fetched by the real client and answers."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the transformers engine has an environment of its own: make test-torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

from callsmith.core.events import Text
from callsmith.core.values import Message, Request, Sampling
from callsmith.models.opening import Options, open_local
from callsmith.models.weights.fetch import fetch
from tests.engines.transformers.conftest import THREADS_HERE
from tests.hub_fixtures import home, hub_server
from tests.hub_server import FakeHub
from tests.small import small_file

__all__ = ["home", "hub_server"]

pytestmark = [pytest.mark.torch, pytest.mark.weights]
REPO = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture
def files(folder: Path) -> dict[str, bytes | Path]:
    small_file()
    return {file.name: file for file in folder.iterdir()}


async def test_a_checkpoint_of_a_hub_answers(files: dict[str, bytes | Path], hub_server: FakeHub):
    hub_server.add(REPO, {**files, "onnx/model.onnx": b"x", "pytorch_model.bin": b"x"})
    snapshot = fetch(REPO)
    assert {path.name for path in snapshot.iterdir()} == set(files)
    model = open_local(REPO, Options(context=512, threads=THREADS_HERE))
    try:
        assert model.engine.info.name == "SmolLM2-135M-Instruct"
        request = Request((Message("user", "Name a colour."),), sampling=Sampling(temperature=0, max_tokens=8))
        assert "".join([event.text async for event in model.stream(request) if isinstance(event, Text)]).strip()
    finally:
        await model.engine.close()


def test_of_a_repository_with_both_the_checkpoint_is_had_by_asking_for_it(files: dict[str, bytes | Path], hub_server: FakeHub):
    hub_server.add(REPO, {**files, "m-Q4_1.gguf": small_file()})
    assert fetch(REPO).suffix == ".gguf"
    assert fetch(f"transformers:{REPO}").is_dir()
