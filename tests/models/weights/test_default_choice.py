"""Which model is taken where none is named: by the pure rule, and with a hub on this machine that answers, or does not."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from callsmith.core.options import DefaultModel
from callsmith.core.types.quantities import write_size
from callsmith.formats import formats
from callsmith.models.presets import preset_for
from callsmith.models.weights import hub
from callsmith.models.weights.catalogue import catalogue, default_model
from callsmith.models.weights.default_choice import AskHub, DefaultChoice, ask_hub, choose_default, find_candidates
from callsmith.models.weights.fetch import fetch, locate
from callsmith.models.weights.hub_models import HubModel, hub_models
from callsmith.models.weights.hub_names import parse
from tests.hub_server import FakeHub

OWN = default_model()
BEST, SECOND, THIRD = [model for model in hub_models().values() if model.offered]
PLENTY = 64 * 10**9
CONTENT = b"GGUF" + bytes(1000)


def has_all(models: Sequence[HubModel]) -> Mapping[str, int]:
    return {model.name: model.size for model in models}


def has_none(models: Sequence[HubModel]) -> Mapping[str, int]:
    return {}


def is_silent(models: Sequence[HubModel]) -> None:
    return None


def is_not_asked(models: Sequence[HubModel]) -> None:
    pytest.fail("the hub was asked")


def repo_of(model: HubModel) -> str:
    name = parse(model.hub)
    assert name is not None
    return name.repo


@pytest.mark.parametrize("can_ask", [True, False])
@pytest.mark.parametrize("installed", [set[str](), {OWN}, {OWN, BEST.name}, {BEST.name}])
def test_embedded_is_embedded_whatever_there_is(installed: set[str], can_ask: bool):
    choice = choose_default("embedded", installed=installed, room=PLENTY, can_ask=can_ask, ask_hub=is_not_asked)
    assert choice == DefaultChoice(OWN)


@pytest.mark.parametrize("installed", [{OWN}, {OWN, BEST.name}])
def test_who_has_the_default_keeps_it_and_no_hub_is_asked(installed: set[str]):
    assert choose_default("ask", installed=installed, room=PLENTY, can_ask=True, ask_hub=is_not_asked) == DefaultChoice(OWN)


def test_where_nobody_can_be_asked_nothing_else_is_fetched():
    assert choose_default("ask", installed=(), room=PLENTY, can_ask=False, ask_hub=is_not_asked) == DefaultChoice(OWN)


@pytest.mark.parametrize(("policy", "installed"), [("ask", {BEST.name, SECOND.name}), ("best", {OWN, BEST.name})])
@pytest.mark.parametrize("can_ask", [True, False])
def test_the_best_that_is_here_wins_before_anything_is_fetched(policy: DefaultModel, installed: set[str], can_ask: bool):
    choice = choose_default(policy, installed=installed, room=PLENTY, can_ask=can_ask, ask_hub=is_not_asked)
    assert choice == DefaultChoice(BEST.name, "it is on this machine")


def test_what_is_here_and_too_large_for_the_memory_is_passed_over():
    room = int(BEST.size * 1.1)
    choice = choose_default("ask", installed={BEST.name, SECOND.name}, room=room, can_ask=False, ask_hub=is_not_asked)
    assert choice.name == SECOND.name


@pytest.mark.parametrize(("policy", "is_question"), [("ask", True), ("best", False)])
def test_the_best_of_the_hub_is_a_question_unless_the_user_wants_it(policy: DefaultModel, is_question: bool):
    choice = choose_default(policy, installed=(), room=PLENTY, can_ask=is_question, ask_hub=has_all)
    assert (choice.name, choice.size, choice.is_question) == (BEST.name, BEST.size, is_question)
    assert "not tried here" in choice.reason


@pytest.mark.parametrize(
    ("room", "name"), [(BEST.size * 2, BEST.name), (BEST.size * 2 - 1, SECOND.name), (SECOND.size * 2 - 1, OWN), (None, OWN)]
)
def test_no_more_is_fetched_than_fits_into_half_of_the_memory(room: int | None, name: str):
    choice = choose_default("best", installed=(), room=room, can_ask=True, ask_hub=has_all)
    assert choice.name == name and choice.reason


def test_what_the_hub_says_of_the_size_counts():
    choice = choose_default("best", installed=(), room=PLENTY, can_ask=True, ask_hub=lambda models: {BEST.name: PLENTY})
    assert (choice.name, choice.size) == (OWN, 0)


@pytest.mark.parametrize(("hub", "why"), [(is_silent, "not answered within 2 seconds"), (has_none, "no better one")])
def test_a_hub_that_gives_nothing_leaves_the_default_and_it_is_told_why(hub: AskHub, why: str):
    choice = choose_default("ask", installed=(), room=PLENTY, can_ask=True, ask_hub=hub)
    assert choice.name == OWN and why in choice.reason and not choice.is_question


def test_a_hub_that_answers_in_time_is_taken_at_its_word(hub_server: FakeHub):
    hub_server.add(repo_of(BEST), {"m-Q4_K_M.gguf": CONTENT})
    assert ask_hub([BEST, SECOND]) == {BEST.name: len(CONTENT)}
    assert hub_server.downloads() == []


def test_what_is_gated_or_gone_or_lacks_the_file_is_passed_over(hub_server: FakeHub):
    hub_server.add(repo_of(BEST), {"m-Q4_K_M.gguf": CONTENT}, tokens=frozenset({"t"}))
    assert ask_hub([BEST, SECOND, THIRD]) == {}
    hub_server.add(repo_of(SECOND), {"m-Q8_0.gguf": CONTENT})
    hub_server.add(repo_of(THIRD), {"m-Q4_K_M.gguf": CONTENT})
    assert ask_hub([BEST, SECOND, THIRD]) == {THIRD.name: len(CONTENT)}


def test_what_takes_time_on_this_machine_is_done_before_the_hub_is_asked(hub_server: FakeHub, monkeypatch: pytest.MonkeyPatch):
    model = next(model for model in hub_models().values() if model.offered)
    name = hub.parse(model.hub)
    assert name
    hub_server.add(name.repo, {f"m-{name.label}.gguf": b"GGUF"})
    asked_before: list[int] = []
    monkeypatch.setattr(hub, "model_memory", lambda: asked_before.append(len(hub_server.requests)) or 10**12)
    assert hub.plan_first([name], 30)[0] is not None
    assert asked_before[0] == 0, "loading the library is no time of the hub's"


def test_a_hub_that_answers_too_late_is_not_waited_for(hub_server: FakeHub):
    hub_server.add(repo_of(BEST), {"m-Q4_K_M.gguf": CONTENT})
    hub_server.delay = 3
    begin = time.monotonic()
    assert ask_hub([BEST]) is None
    assert time.monotonic() - begin < 2.9


def test_a_hub_that_fails_or_is_not_there_or_not_wanted_gives_no_answer(hub_server: FakeHub, monkeypatch: pytest.MonkeyPatch):
    hub_server.add(repo_of(BEST), {"m-Q4_K_M.gguf": CONTENT})
    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
        assert ask_hub([BEST]) is None
    asked = len(hub_server.requests)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert ask_hub([BEST]) is None
    assert len(hub_server.requests) == asked


def test_once_fetched_it_is_found_here(hub_server: FakeHub):
    assert find_candidates() == set()
    hub_server.add(repo_of(BEST), {"m-Q4_K_M.gguf": CONTENT})
    assert fetch(BEST.name) == locate(BEST.name)
    assert find_candidates() == {BEST.name}


def test_every_model_of_the_hub_is_known_by_a_name_of_its_own_with_a_format_that_fits_its_name():
    assert not set(hub_models()) & set(catalogue())
    for model in hub_models().values():
        name = parse(model.name)
        assert name == parse(model.hub) and name is not None and name.is_marked and name.label
        assert model.is_open or not model.offered
        assert 10**8 < model.size < 10**10
        if model.format:
            preset = preset_for(repo_of(model).rpartition("/")[2])
            assert model.format in formats() and (preset is None or preset.formats[0] == formats()[model.format])


def test_the_guide_says_the_same_of_each():
    guide = (Path(__file__).parents[3] / "docs" / "models.md").read_text("utf-8")
    for model in hub_models().values():
        score, format = f" {model.bfcl} " if model.bfcl else " ", f"`{model.format}`" if model.format else "as its template shows"
        assert f"| `{model.name}` | {model.licence} | {write_size(model.size)} |{score}| {format} |" in guide
    offered = ", ".join(f"`{model.name}`" for model in (BEST, SECOND))
    assert f"{offered} or `{THIRD.name}`, the first that is on this machine" in guide
