"""The policy that follows from scores, and that it counts when a model is opened."""

from pathlib import Path

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.ports import WeightsInfo
from callsmith.engines.port import EngineInfo
from callsmith.evals.run.record import Record
from callsmith.evals.scores.policy import suggest
from callsmith.models import opening
from callsmith.models.opening import Options
from callsmith.models.weights.measured import Measured, all_measured, store_measured


def records(setup: str, calls: int, silent: int) -> list[Record]:
    """So many of 20 right with calls, and so many of 20 where nothing is to be called."""
    return [
        *(Record(f"m_{number}", "multiple", f"m/{setup}", "d", number < calls) for number in range(20)),
        *(Record(f"i_{number}", "irrelevance", f"m/{setup}", "d", number < silent) for number in range(20)),
    ]


@pytest.mark.req("R222", "R228")
@pytest.mark.parametrize(
    ("guarded", "required", "best", "policy", "is_constrained"),
    [
        ((12, 18), (15, 17), "required", "required_first_hop", True),  # a little worse at silence is chance
        ((12, 18), (19, 2), "guarded", "auto", True),  # far worse is not
        ((9, 18), (19, 2), "free-repaired", "auto", False),
        ((10, 18), (10, 18), "free-repaired", "auto", False),  # of equal ones the one that constrains least
    ],
)
def test_the_setup_with_the_most_right_calls_counts_unless_it_ruins_irrelevance(
    guarded: tuple[int, int], required: tuple[int, int], best: str, policy: str, is_constrained: bool
):
    found = suggest([*records("free-repaired", 10, 18), *records("guarded", *guarded), *records("required", *required)], "m")
    assert (found.setup, found.policy, found.auto_guarded) == (best, policy, is_constrained)
    assert f'policy = "{policy}"' in found.lines
    assert best in found.reasons[-1]


def test_without_both_kinds_of_cases_or_two_setups_nothing_follows():
    with pytest.raises(UsageError, match="at least two"):
        suggest(records("guarded", 5, 5), "m")
    half = [record for setup in ("guarded", "required") for record in records(setup, 5, 5) if record.category == "multiple"]
    with pytest.raises(UsageError, match="irrelevance"):
        suggest(half, "m")


@pytest.mark.req("R222")
def test_what_was_measured_counts_before_a_preset_and_behind_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, callsmith):
    monkeypatch.setenv("CALLSMITH_CONFIG", str(tmp_path))
    info = EngineInfo("Qwen2 0.5B", weights=WeightsInfo(size=77))

    def traits(options: Options = Options(), info: EngineInfo = info):
        return opening._parts("mine.gguf", options, info)[2]  # pyright: ignore[reportPrivateUsage]

    assert (traits().policy, traits().auto_guarded) == ("auto", False)
    store_measured("Qwen2 0.5B", 77, Measured("mine", "required_first_hop", True, {"guarded": {"n": 5}}))
    store_measured("Other", 78, Measured("other"))
    assert (traits().policy, traits().auto_guarded) == ("required_first_hop", True)
    assert traits(Options(policy="auto", auto_guarded=False)).policy == "auto"
    assert not traits(Options(auto_guarded=False)).auto_guarded
    assert traits(info=EngineInfo("Qwen2 0.5B", weights=WeightsInfo(size=78))).policy == "auto"
    assert [one.model for one in all_measured().values()] == ["mine", "other"]
    assert "mine, Qwen2 0.5B (77 bytes): policy required_first_hop, calls constrained" in callsmith("models").out


def test_what_is_no_file_of_weights_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CALLSMITH_CONFIG", str(tmp_path))
    with pytest.raises(UsageError, match="no file of weights"):
        store_measured("gpt", 0, Measured("gpt"))
    (tmp_path / "measured.json").write_text("[1]")
    with pytest.raises(UsageError, match="cannot be read"):
        all_measured()
