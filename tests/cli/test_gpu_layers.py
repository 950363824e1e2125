"""`--gpu-layers`, and what is said of GPUs at start-up."""

import pytest

from callsmith.cli.inputs.served_models import model_options
from callsmith.cli.serve import _banner
from callsmith.core.ports import ModelInfo
from callsmith.engines.scripted import Scripted
from callsmith.models import open_model, opening
from callsmith.server.settings import Llm, Settings


def test_the_banner_says_which_gpu_is_used_or_why_none():
    info = ModelInfo(format="hermes", placement="30 of 30 layers on CUDA0 (NVIDIA H200, 139 GiB)")
    banner = _banner("http://h:1", {"m": info}, "")
    assert "at http://h:1/v1. 30 of 30 layers on CUDA0 (NVIDIA H200, 139 GiB). " in banner
    banner = _banner("http://h:1", {"m": ModelInfo(format="hermes", placement="an NVIDIA GPU is not used: no build")}, "")
    assert "/v1. An NVIDIA GPU is not used: no build. " in banner


@pytest.mark.parametrize("layers", [None, "0", "7"])
def test_the_layers_for_gpus_reach_the_engine(callsmith, monkeypatch, layers):
    options_seen, wanted = [], layers and int(layers)

    def open_scripted(rest, *, gpu_layers=None):
        options_seen.append(gpu_layers)
        return Scripted([rest])

    monkeypatch.setattr(opening, "find_engine", lambda scheme: open_scripted)
    open_model("scripted:Hello.", model_options(Llm(gpu_layers=wanted), Settings()))
    assert callsmith("chat", "--model", "scripted:Hello.", *([] if layers is None else ["--gpu-layers", layers]), "Hi").code == 0
    assert options_seen == [wanted, wanted]


def test_fewer_than_none_is_refused(callsmith):
    result = callsmith("chat", "--model", "scripted:Hello", "--gpu-layers", "-1", "Hi")
    assert result.code == 2 and "--gpu-layers" in result.err
