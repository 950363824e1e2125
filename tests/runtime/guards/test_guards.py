"""The safety net for small models."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from callsmith.cli.main import app
from callsmith.core.errors import UnknownName
from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Stopped, Text, ToolFinished, TurnEnded
from callsmith.core.ports import ModelInfo
from callsmith.core.values import Choice, Message, Request, Tool, Usage
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models import opening
from callsmith.models.local import LocalModel, Traits
from callsmith.models.presets import presets
from callsmith.models.weights.catalogue import catalogue
from callsmith.runtime.guards.answers import ANSWER, LINE
from callsmith.runtime.guards.guards import default_guards, guard_model
from callsmith.runtime.guards.loop_detectors import MOST_CALLS
from callsmith.runtime.loop import run
from callsmith.server.settings import Settings
from callsmith.tools.functions import Functions, tool
from tests.fakes import FakeModel
from tests.runtime.guards.histories import CITY, CLOCK, JSON, QUESTION, SAYS, WEATHER, bonn, calls, history
from tests.server.asking import make_pipeline


async def asked(guard: str, *rounds: Any, request: Request | None = None) -> Request:
    """What the model is asked behind this guard, after these rounds."""
    model = FakeModel(SAYS)
    request = request or Request((), (WEATHER, CLOCK))
    async for _ in guard_model(model, [guard]).stream(replace(request, messages=history(*rounds))):
        pass
    return model.asked[-1]


SAME = "Making the same calls again gives the same results."


def hint_in(request: Request) -> str:
    """What stands behind the latest result or, where the question is asked anew, behind the question."""
    return request.messages[-1].content.partition("\n")[2]


# repeats


@pytest.mark.req("R102")
async def test_the_same_call_with_the_same_result_brings_a_hint_and_then_the_end_of_calling():
    once = await asked("repeats", (bonn(), "mild"))
    assert (hint_in(once), once.choice) == ("", Choice())
    twice = await asked("repeats", (bonn(), "mild"), (bonn(), "mild"))
    assert twice.messages == (Message.user(f"{QUESTION.content}\n\n(system: tool results — weather -> mild. {SAME} {ANSWER})"),)
    assert (twice.choice, twice.policy) == (Choice(), "auto")
    thrice = await asked("repeats", *[(bonn(), "mild")] * 3)
    assert (thrice.messages, thrice.choice) == (twice.messages, Choice("none"))


async def test_calls_that_differ_only_in_case_space_or_the_order_of_keys_are_the_same():
    first, second = calls("weather", city="Bonn", days=1), calls("weather", days=1.0, city=" bonn ")
    assert hint_in(await asked("repeats", (first, "mild"), (second, "mild")))


async def test_polling_is_legitimate():
    assert not hint_in(await asked("repeats", (bonn(), "mild"), (bonn(), "warm"), (bonn(), "mild")))
    assert not hint_in(await asked("repeats", (bonn(), "mild"), (bonn("Rome"), "mild")))
    assert not hint_in(await asked("repeats", (bonn(), "mild"), (calls("clock"), "12:00"), (bonn(), "mild")))


async def test_what_was_done_before_the_user_spoke_again_does_not_count():
    model = FakeModel(SAYS)
    before = history((bonn(), "mild"), (bonn(), "mild"))
    now = history((bonn(), "mild"))
    async for _ in guard_model(model, ["repeats"]).stream(Request((*before, Message.assistant("Mild."), *now), (WEATHER,))):
        pass
    assert not hint_in(model.asked[0])


async def test_an_answer_that_is_to_be_continued_is_left_as_it_is():
    model = FakeModel(SAYS)
    begun = (*history(*[(bonn(), "mild")] * 3), Message.assistant("It is"))
    async for _ in guard_model(model, ["small"]).stream(Request(begun, (WEATHER,))):
        pass
    assert model.asked == [Request(begun, (WEATHER,))]


async def test_a_call_that_is_required_stays_so():
    request = Request((), (WEATHER,), Choice.only("weather"))
    assert (await asked("repeats", *[(bonn(), "mild")] * 3, request=request)).choice == Choice.only("weather")


async def test_a_model_that_calls_though_it_may_not_is_not_heard():
    call = bonn()
    stubborn = FakeModel([CallStarted(0, "weather"), CallArguments(0, "{}"), Text("Mild."), CallReady(0, call), Stopped("calls")])
    request = Request(history(*[(bonn(), "mild")] * 3), (WEATHER,))
    events = [event async for event in guard_model(stubborn, ["repeats"]).stream(request)]
    assert events == [Text("Mild."), Stopped("stop")]


# cycles


@pytest.mark.req("R102")
@pytest.mark.parametrize("length", [2, 3, 4])
async def test_calls_in_a_cycle_are_found_out(length: int):
    cycle = [(calls("weather", city=str(number)), "mild") for number in range(length)]
    assert not hint_in(await asked("cycles", *cycle, *cycle[:-1]))
    twice = await asked("cycles", *cycle, *cycle)
    text = "; ".join(f'weather {{"city": "{number}"}} -> mild' for number in range(length))
    assert hint_in(twice) == f"\n(system: tool results — {text}. {SAME} {ANSWER})"
    assert twice.choice == Choice()
    assert (await asked("cycles", *cycle, *cycle, *cycle)).choice == Choice("none")


async def test_the_same_calls_side_by_side_are_a_cycle_too():
    together = [(bonn(), "mild"), (calls("clock"), "12:00")]
    assert hint_in(await asked("cycles", together, together))


async def test_one_call_over_and_over_is_no_cycle_of_several():
    assert not hint_in(await asked("cycles", *[(bonn(), "mild")] * 6))


async def test_work_that_goes_forward_between_the_same_calls_is_no_cycle():
    rounds = [
        step for number in range(4) for step in [(calls("clock"), "failed"), (calls("weather", city=f"fix {number}"), "ok")]
    ]
    assert not hint_in(await asked("cycles", *rounds))
    assert not hint_in(await asked("repeats", *rounds))


# echoes


@pytest.mark.req("R102")
@pytest.mark.parametrize(
    "arguments",
    [
        {"celsius": 14, "sky": "Mild"},
        CITY,
        CITY["properties"],
        {"city": CITY["properties"]["city"]},
        {"city": "where."},
        {"city": "The weather."},
    ],
)
async def test_arguments_that_are_only_copied_bring_a_hint_and_then_the_end_of_calling(arguments: dict[str, Any]):
    step = (bonn(), {"celsius": 14, "sky": "mild"})
    copied = (calls("weather", **arguments), "invalid_arguments")
    once = await asked("echoes", step, copied)
    assert "were only copied from above" in hint_in(once)
    assert once.choice == Choice()
    assert (await asked("echoes", step, copied, copied)).choice == Choice("none")
    assert not hint_in(await asked("echoes", step, copied, (bonn(), "mild")))


async def test_a_result_that_fits_may_be_handed_on():
    assert not hint_in(await asked("echoes", (calls("clock"), {"city": "Bonn"}), (bonn(), "mild")))


# missing


@pytest.mark.req("R102")
@pytest.mark.parametrize("arguments", [{}, {"city": ""}, {"city": " "}, {"city": None}, {"days": 3}])
async def test_arguments_that_are_missing_or_empty_are_named_and_the_second_time_is_the_last(arguments: dict[str, Any]):
    empty = (calls("weather", **arguments), "invalid_arguments")
    once = await asked("missing", empty)
    assert hint_in(once) == "(weather cannot do without: city (Where). If the request does not say, ask the user.)"
    assert once.choice == Choice()
    assert (await asked("missing", empty, empty)).choice == Choice("none")


async def test_an_empty_argument_among_others_and_a_tool_that_needs_none_are_fine():
    replacing = Tool("replace", parameters={"properties": {"old": {}, "new": {}}, "required": ["old", "new"]})
    request = Request((), (replacing, CLOCK))
    assert not hint_in(await asked("missing", (calls("replace", old="a", new=""), "ok"), request=request))
    assert not hint_in(await asked("missing", (calls("clock"), "12:00"), request=request))


# budgets


@pytest.mark.req("R102")
async def test_a_tool_that_was_called_often_enough_is_no_longer_offered():
    rounds = [(calls("weather", city=f"town {number}"), number) for number in range(MOST_CALLS)]
    assert not hint_in(await asked("budgets", *rounds[:-1]))
    spent = await asked("budgets", *rounds)
    assert spent.choice == Choice("auto", ("clock",))
    assert f"weather was called {MOST_CALLS} times" in hint_in(spent)
    assert (await asked("budgets", *rounds, rounds[0])).choice == Choice("none")
    assert (await asked("budgets", *rounds, request=Request((), (WEATHER,)))).choice == Choice("none")


# results-as-user


@pytest.mark.req("R101")
async def test_results_are_told_as_by_the_user():
    together = [(bonn(), JSON), (calls("clock"), "12:00")]
    seen = await asked("results-as-user", together)
    assert [message.role for message in seen.messages] == ["user", "assistant", "user"]
    assert seen.messages[-1].content == (
        f"(system: tool results — weather -> {JSON}; clock -> 12:00. Now answer the previous request in one short sentence.)"
    )
    assert seen.policy == "auto"


@pytest.mark.req("R101")
async def test_elsewhere_results_keep_their_role():
    assert (await asked("repeats", (bonn(), JSON))).messages[-1].role == "tool"


async def test_hints_reach_a_model_that_is_told_results_as_by_the_user():
    model = FakeModel(SAYS)
    request = Request(history((bonn(), "mild"), (bonn(), "mild")), (WEATHER,))
    async for _ in guard_model(model, ["results-as-user", "repeats"]).stream(request):
        pass
    assert SAME in model.asked[0].messages[-1].content


# together


class Small(FakeModel):
    info = ModelInfo(guards=("small",))


@tool
def weather(city: str) -> str:
    """The weather."""
    return f"mild in {city}"


@pytest.mark.req("R223")
@pytest.mark.req("R102")
async def test_a_small_model_that_would_call_for_ever_answers_in_the_end_and_the_conversation_holds_no_hints():
    def answers(request: Request) -> list[ModelEvent]:
        if request.choice.mode == "none":
            return SAYS
        return [CallReady(0, bonn()), Stopped("calls", Usage(10, 5))]

    model = Small([])
    events = [event async for event in run(guard_model(deciding(model, answers)), Functions(weather), Request((QUESTION,)))]
    ended = events[-1]
    assert isinstance(ended, TurnEnded)
    assert [message.role for message in ended.messages] == ["assistant", "tool", "assistant"]
    assert ended.messages[-1].content == "It is mild."
    assert {message.content for message in ended.messages if message.role == "tool"} == {"mild in Bonn"}


def deciding(model: FakeModel, answers: Callable[[Request], list[ModelEvent]]) -> FakeModel:
    """The model, giving answers that depend on what it is asked."""
    output = model.stream

    def stream(request: Request) -> AsyncIterator[ModelEvent]:
        model.answers = [answers(request)]
        return output(request)

    model.stream = stream
    return model


@pytest.mark.req("R102")
def test_the_bundle_for_small_models():
    assert default_guards() == ("repeats", "cycles", "echoes", "missing", "budgets", "answers", "search-first")


def test_a_model_is_guarded_as_it_needs_and_others_are_left_alone():
    plain = FakeModel(SAYS)
    assert guard_model(plain) is plain
    assert guard_model(plain, []) is plain
    assert guard_model(Small(SAYS)) is not plain
    with pytest.raises(UnknownName, match="unknown guard 'repeat'; did you mean 'repeats'"):
        guard_model(plain, ["repeat"])


def test_every_guard_that_is_named_for_a_model_exists():
    guard_lists = [known.guards for known in (*presets(), *catalogue().values()) if known.guards]
    assert guard_lists
    for guards in guard_lists:
        guard_model(FakeModel(SAYS), guards)


def test_the_models_that_come_along_have_the_safety_net_or_are_asked_in_a_way_that_needs_none():
    for entry in catalogue().values():
        assert ("small" in entry.guards) != (bool(entry.tool_prompt) and entry.threshold is not None)


# where calls are run for a user

CALLING = '<tool_call>\n<name>weather</name>\n<arguments>{"city": "Bonn"}</arguments>\n</tool_call>'


def small_model(*replies: str) -> tuple[LocalModel, Scripted]:
    engine = Scripted(replies)
    traits = Traits(guards=("small",), parallel=False)
    return LocalModel(engine, format_named("generic-xml"), Template(CHATML), traits), engine


@pytest.mark.req("R102")
@pytest.mark.parametrize("on", [True, False])
async def test_the_server_guards_small_models_whose_calls_it_runs_unless_told_not_to(on: bool):
    model, engine = small_model(CALLING, CALLING, CALLING, "It is mild.")
    answers = make_pipeline({"small": model}, Functions(weather), Settings(guards=on))
    texts = [event.text async for event in answers.answer(model, Request((QUESTION,))) if isinstance(event, Text)]
    assert "".join(texts) == "It is mild."
    assert (ANSWER in engine.asked[-1].prompt.text) == on


@pytest.mark.parametrize("on", [True, False])
async def test_calls_that_a_client_runs_are_guarded_from_the_history_alone(on: bool):
    model, engine = small_model(CALLING, "It is mild.")
    request = Request(history((bonn(), "mild")), (WEATHER,))
    answers = make_pipeline({"small": model}, None, Settings(guards=on))
    events = [event async for event in answers.answer(model, request)]
    assert any(isinstance(event, CallReady) for event in events) == (not on)
    end = events[-1]
    assert isinstance(end, Stopped)
    assert (end.reason, end.report.taken_back) == (("stop", ("repeated_call",)) if on else ("calls", ()))
    assert [LINE in request.prompt.text for request in engine.asked] == [False, True][: len(engine.asked)]


@pytest.mark.req("R214")
async def test_a_model_whose_first_call_is_constrained_is_guarded_all_the_same():
    model, engine = small_model(CALLING, CALLING, "It is mild.")
    request = Request((QUESTION,), policy="required_first_hop")
    events = [event async for event in run(guard_model(model), Functions(weather), request)]
    assert isinstance(events[-1], TurnEnded)
    assert [request.grammar is not None for request in engine.asked] == [True, False, False]
    assert [LINE in request.prompt.text for request in engine.asked] == [False, False, True]


async def test_a_run_has_the_guards_its_model_needs_and_others_where_they_are_named():
    for guards, runs in ((None, 1), ((), 2)):
        model, engine = small_model(CALLING, CALLING, "It is mild.")
        events = [event async for event in run(model, Functions(weather), Request((QUESTION,)), guards=guards)]
        assert sum(isinstance(event, ToolFinished) for event in events) == runs
        assert any(LINE in request.prompt.text for request in engine.asked) == (guards is None)


@pytest.mark.req("R102")
@pytest.mark.parametrize("switches", [[], ["--no-guards"]])
def test_chat_guards_small_models_unless_told_not_to(monkeypatch: pytest.MonkeyPatch, switches: list[str]):
    call = CALLING.replace("weather", "get_weather")
    engine = Scripted([call, call, call, "It is mild."])
    engine.info = replace(engine.info, name="SmolLM2 135M Instruct")
    monkeypatch.setattr(opening, "_engine", lambda *_: engine)
    result = CliRunner().invoke(app, ["chat", "--model", "scripted:small", *switches, "What is the weather in Bonn?"])
    assert result.stdout.splitlines()[-1] == "It is mild."
    assert (ANSWER in engine.asked[-1].prompt.text) == (not switches)
