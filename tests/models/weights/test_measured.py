"""What was measured of weights counts when they are opened."""

from pathlib import Path

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.ports import WeightsInfo
from callsmith.engines.port import EngineInfo
from callsmith.models import opening
from callsmith.models.opening import Options
from callsmith.models.traits import Traits
from callsmith.models.weights.measured import Measured, load_measured, store_measured

INFO = EngineInfo("Qwen2 0.5B", weights=WeightsInfo(size=77))


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALLSMITH_CONFIG", str(tmp_path))
    return tmp_path


def traits(options: Options = Options(), info: EngineInfo = INFO) -> Traits:
    return opening._parts("mine.gguf", options, info)[2]  # pyright: ignore[reportPrivateUsage]


@pytest.mark.req("R222")
def test_what_was_measured_counts_before_a_preset_and_behind_the_user():
    assert (traits().policy, traits().auto_guarded) == ("auto", False)
    measured = Measured("mine", "required_first_hop", True, scores={"guarded": {"n": 5}})
    store_measured("Qwen2 0.5B", 77, measured)
    store_measured("Other", 78, Measured("other"))
    assert (traits().policy, traits().auto_guarded) == ("required_first_hop", True)
    assert traits(Options(policy="auto", auto_guarded=False)).policy == "auto"
    assert not traits(Options(auto_guarded=False)).auto_guarded
    assert traits(info=EngineInfo("Qwen2 0.5B", weights=WeightsInfo(size=78))).policy == "auto"
    assert [item.model for item in load_measured().values()] == ["mine", "other"]


@pytest.mark.req("R222")
def test_the_tool_prompt_that_was_measured_is_used_with_its_threshold_and_another_with_its_own():
    store_measured("Qwen2 0.5B", 77, Measured("mine", auto_guarded=True, tool_prompt="json-array", threshold=2.5))
    assert (traits().tool_prompt.name, traits().tool_prompt.threshold) == ("json-array", 2.5)
    assert traits(Options(tool_prompt="template")).tool_prompt.threshold is None


def test_what_is_no_file_of_weights_cannot_be_kept(config: Path):
    with pytest.raises(UsageError, match="no file of weights"):
        store_measured("gpt", 0, Measured("gpt"))
    (config / "measured.json").write_text("[1]")
    with pytest.raises(UsageError, match="cannot be read"):
        load_measured()
