"""A real model is opened with layers for a GPU, and the engine says where they are."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("llguidance")

from callsmith.core.errors import UsageError
from callsmith.engines import llama
from callsmith.engines.llama import gguf
from callsmith.engines.llama.libllama import load
from callsmith.engines.llama.placement import Device, gpus
from callsmith.engines.llama_builds.builds import Machine
from callsmith.formats.prompt.prompt import Prompt
from tests.engines.contract import GREEDY, say
from tests.small import small_file

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def file() -> Path:
    return small_file()


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (None, "30 of 30 layers on CUDA0 (NVIDIA H200, 139 GiB)"),
        (10, "10 of 30 layers on CUDA0 (NVIDIA H200, 139 GiB)"),
        (0, "on the processor; CUDA0 (NVIDIA H200, 139 GiB) is not used: as chosen"),
    ],
)
async def test_where_the_layers_are_is_known_of_the_engine(
    file: Path, monkeypatch: pytest.MonkeyPatch, layers: int | None, expected: str
) -> None:
    card = Device("CUDA0", "NVIDIA H200", 138 << 30, 139 << 30)  # the library has no code for it, and computes as ever
    monkeypatch.setattr(gguf, "gpus", lambda library: (card,))
    engine = llama.open(str(file), context=256, threads=1, gpu_layers=layers)
    assert engine.info.placement == expected
    await engine.close()


async def test_the_answer_is_the_same_with_none_chosen_where_there_is_none(file: Path) -> None:
    if gpus(load()):
        pytest.skip("there is a GPU")
    answers = []
    for layers in (None, 0, 99):
        engine = llama.open(str(file), context=256, threads=1, gpu_layers=layers)
        answers.append(await say(engine, Prompt("The sea is"), replace(GREEDY, max_tokens=4)))
        await engine.close()
    assert answers[0] == answers[1] == answers[2]


async def test_a_gpu_that_the_library_cannot_use_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine("linux", "x86_64", driver="580.1", cards=("NVIDIA H200",))
    monkeypatch.setattr(gguf, "this_machine", lambda: machine)
    engine = llama.open(str(file), context=256, threads=1)
    assert engine.info.placement == "NVIDIA H200 is not used: CALLSMITH_LIBLLAMA is pinned"
    await engine.close()


def test_less_than_no_layer_is_refused(file: Path) -> None:
    with pytest.raises(UsageError, match="gpu_layers at least 0"):
        llama.open(str(file), gpu_layers=-1)
