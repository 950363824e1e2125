"""LocalModel over the scripted engine: what it asks of the engine, and what it shows of the answer."""

from dataclasses import replace
from typing import Any

import pytest

from callsmith.core.errors import UnknownName, UnsupportedSchema, UsageError
from callsmith.core.events import CallReady, CallStarted, ModelEvent, Started, Stopped, Text, Thought, Unenforced, Unreadable
from callsmith.core.values import Choice, Message, Request, Result, Tool
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.grammar.calls import grammar_for
from callsmith.grammar.nodes import Grammar
from callsmith.models.local import LocalModel, Traits

WEATHER = Tool("get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ASK = Request((Message.user("Weather?"),), (WEATHER,))


def model(reply: str, format: str = "hermes", **options) -> tuple[LocalModel, Scripted]:
    engine = Scripted([reply], repeat=True)
    return LocalModel(engine, format_named(format), Template(CHATML), Traits(**options)), engine


async def events(model: LocalModel, request: Request) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


def calls(events: list[ModelEvent]) -> list[tuple[str, dict]]:
    return [(event.call.name, dict(event.call.arguments)) for event in events if isinstance(event, CallReady)]


@pytest.mark.req("R71")
@pytest.mark.req("R23")
async def test_where_the_model_may_choose_it_is_left_alone():
    local, engine = model(f"Sure. {CALL}")
    answer = await events(local, ASK)
    assert calls(answer) == [("get_weather", {"city": "Paris"})]
    assert engine.asked[0].grammar is None
    assert isinstance(answer[-1], Stopped) and answer[-1].reason == "calls"


@pytest.mark.req("R32")
@pytest.mark.req("R71")
@pytest.mark.req("R63")
@pytest.mark.req("R81")
@pytest.mark.req("R25")
async def test_a_call_that_must_come_is_constrained_from_the_start():
    local, engine = model(CALL)
    await events(local, replace(ASK, choice=Choice("required")))
    grammar = engine.asked[0].grammar
    assert grammar is not None and not grammar.triggers


@pytest.mark.req("R225")
async def test_a_strict_tool_is_constrained_where_its_call_begins():
    local, engine = model(CALL)
    await events(local, replace(ASK, tools=(replace(WEATHER, strict=True),)))
    grammar = engine.asked[0].grammar
    assert grammar is not None and grammar.triggers == ("<tool_call>",)


@pytest.mark.req("R32")
async def test_where_the_model_may_choose_its_calls_are_constrained_only_if_it_is_auto_guarded():
    free, unheld = model(CALL)
    local, engine = model(CALL, auto_guarded=True)
    assert calls(await events(free, ASK)) == calls(await events(local, ASK))
    assert unheld.asked[0].grammar is None
    grammar = engine.asked[0].grammar
    assert grammar is not None and grammar.triggers == ("<tool_call>",)  # text stays free until a call begins
    await events(local, replace(ASK, choice=Choice("none")))
    assert engine.asked[1].grammar is None


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "get_weather", "arguments": {"city": 7}}\n```',
        '```json\n{"name": "get_weather", "arguments": {"town": "Paris"}}\n```',
        '{"name": "get_weather", "arguments": {}}',
    ],
)
async def test_a_guarded_call_in_another_format_is_asked_for_again_under_the_grammar_if_it_is_invalid(text: str):
    also = (format_named("fenced-json"), format_named("json"))
    engine = Scripted([text, CALL])
    local = LocalModel(engine, format_named("hermes"), Template(CHATML), Traits(also=also, auto_guarded=True))
    answer = await events(local, ASK)
    assert calls(answer) == [("get_weather", {"city": "Paris"})]
    assert answer[-1].reason == "calls" and answer[-1].report.retries == 1
    second = engine.asked[1].grammar
    assert second is not None and not second.triggers, "the second time nothing but a call can be written"


async def test_a_valid_guarded_call_in_another_format_is_asked_for_once():
    also = (format_named("fenced-json"),)
    engine = Scripted(['```json\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n```'])
    local = LocalModel(engine, format_named("hermes"), Template(CHATML), Traits(also=also, auto_guarded=True))
    answer = await events(local, ASK)
    assert calls(answer) == [("get_weather", {"city": "Rome"})] and answer[-1].report.retries == 0


SEATS = {"type": "integer", "enum": ["1"]}
IMPOSSIBLE = Tool("book", "", {"type": "object", "properties": {"seats": SEATS}, "required": ["seats"]})


async def test_a_schema_that_no_grammar_can_hold_leaves_the_calls_of_its_tool_free_alone_and_is_told():
    local, engine = model(CALL, auto_guarded=True)
    answer = await events(local, replace(ASK, tools=(*ASK.tools, IMPOSSIBLE)))
    assert calls(answer) == [("get_weather", {"city": "Paris"})]
    open_tool = replace(IMPOSSIBLE, parameters={"type": "object"})
    held = grammar_for(format_named("hermes"), (WEATHER, open_tool), Choice())
    (grammar,) = [request.grammar for request in engine.asked]
    assert isinstance(grammar, Grammar) and replace(grammar, unenforced=()) == held
    (notice,) = answer[-1].report.notices
    assert notice.startswith("calls of book were not constrained: ") and "#/properties/seats" in notice
    assert answer[-1].report.unenforced == ()


async def test_a_schema_that_is_nested_too_deeply_is_refused():
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(3000):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"]}
    local, _ = model(CALL, auto_guarded=True)
    with pytest.raises(UnsupportedSchema, match="nested too deeply"):
        await events(local, replace(ASK, tools=(*ASK.tools, Tool("dig", "", deep))))


async def test_a_call_that_no_grammar_can_hold_is_told_to_be_so():
    call = CALL.replace("get_weather", "book").replace('"city": "Paris"', '"seats": 1')
    local, _ = model(call, auto_guarded=True)
    answer = await events(local, replace(ASK, tools=(*ASK.tools, IMPOSSIBLE)))
    assert calls(answer) == [("book", {"seats": 1})]
    assert answer[-1].report.unenforced == (Unenforced("book", "#/properties/seats", "enum"),)


async def test_a_grammar_that_the_engine_cannot_hold_leaves_all_calls_free():
    class Refusing(Scripted):
        async def generate(self, prompt: Any, sampling: Any, grammar: Any = None) -> Any:
            if grammar is not None:
                raise UnsupportedSchema("#", "grammar", "it is too large")
            async for piece in super().generate(prompt, sampling):
                yield piece

    engine = Refusing([CALL])
    local = LocalModel(engine, format_named("hermes"), Template(CHATML), Traits(auto_guarded=True))
    answer = await events(local, ASK)
    assert calls(answer) == [("get_weather", {"city": "Paris"})]
    assert answer[-1].report.notices == (
        "calls were not constrained: unsupported schema at #, keyword 'grammar': it is too large",
    )


@pytest.mark.parametrize(
    "prompts", [{"choice": Choice("required")}, {"tools": (replace(IMPOSSIBLE, strict=True),)}], ids=["required", "strict"]
)
async def test_a_constraint_that_was_asked_for_is_not_dropped(prompts: dict[str, Any]):
    local, engine = model(CALL, auto_guarded=True)
    with pytest.raises(UnsupportedSchema, match="seats"):
        await events(local, replace(ASK, **({"tools": (IMPOSSIBLE,)} | prompts)))
    assert not engine.asked


@pytest.mark.req("R24")
async def test_with_none_the_model_is_not_told_of_tools_and_its_calls_are_not_shown():
    local, engine = model(f"No. {CALL}")
    answer = await events(local, replace(ASK, choice=Choice("none")))
    assert [event for event in answer if isinstance(event, CallStarted | CallReady | Unreadable)] == []
    assert "".join(event.text for event in answer if isinstance(event, Text)).strip() == "No."
    assert "get_weather" not in engine.asked[0].prompt.text


@pytest.mark.req("R208")
@pytest.mark.req("R113")
async def test_without_tools_markup_is_ordinary_text():
    local, _ = model(f"Look: {CALL}")
    answer = await events(local, Request((Message.user("Hi"),)))
    assert "".join(event.text for event in answer if isinstance(event, Text)) == f"Look: {CALL}"


async def test_every_call_has_an_id_that_the_format_can_carry():
    local, _ = model('[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', "mistral-args")
    answer = await events(local, ASK)
    started = next(event for event in answer if isinstance(event, CallStarted))
    ready = next(event for event in answer if isinstance(event, CallReady))
    assert started.id == ready.call.id
    assert len(started.id) == 9 and started.id.isalnum()


@pytest.mark.req("R43")
async def test_every_block_of_the_generic_format_is_a_call_with_an_id_of_its_own():
    block = '<tool_call>\n<name>get_weather</name>\n<arguments>{"city": "<b> & Köln"}</arguments>\n</tool_call>'
    local, _ = model(f"First {block}\n\n{block}", "generic-xml")
    answer = await events(local, ASK)
    assert calls(answer) == [("get_weather", {"city": "<b> & Köln"})] * 2
    ids = [event.call.id for event in answer if isinstance(event, CallReady)]
    assert len(set(ids)) == 2
    assert all(id.startswith("call_") for id in ids)


@pytest.mark.req("R60")
@pytest.mark.req("R197")
@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS]get_weather[CALL_ID]aB3dE6gH9[ARGS]{"city": "Paris"}',
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "aB3dE6gH9"}]',
    ],
    ids=["before", "behind"],
)
async def test_an_id_the_model_wrote_is_kept_from_the_first_event_to_the_result(text: str):
    for format in ("mistral", "mistral-args"):
        local, engine = model(text, format)
        answer = await events(local, ASK)
        (started,) = [event for event in answer if isinstance(event, CallStarted)]
        (ready,) = [event for event in answer if isinstance(event, CallReady)]
        assert started.id == ready.call.id == "aB3dE6gH9"
        result = Message.tool(Result(ready.call.id, "get_weather", "sunny"))
        await events(local, replace(ASK, messages=(*ASK.messages, Message.assistant(calls=[ready.call]), result)))
        assert "aB3dE6gH9" in engine.asked[1].prompt.text


@pytest.mark.req("R164")
@pytest.mark.req("R86")
async def test_one_call_is_all_where_no_more_are_wanted():
    local, _ = model(f"{CALL}\n{CALL}")
    assert len(calls(await events(local, ASK))) == 2
    answer = await events(local, replace(ASK, parallel=False))
    assert len(calls(answer)) == 1
    assert isinstance(answer[-1], Stopped) and answer[-1].usage.completion > 0


async def test_a_model_that_is_bad_at_it_makes_one_call_unless_it_is_asked_for_more():
    local, _ = model(f"{CALL}\n{CALL}", parallel=False)
    assert len(calls(await events(local, ASK))) == 1
    assert len(calls(await events(local, replace(ASK, parallel=True)))) == 2


async def test_calls_inside_the_reasoning_are_recovered_or_ignored_as_the_model_s_traits_say():
    for in_reasoning, expected in (("recover", [("get_weather", {"city": "Paris"})]), ("ignore", [])):
        local, _ = model(f"<think>\n{CALL}\n</think>\n\nHm.", in_reasoning=in_reasoning)
        answer = await events(local, ASK)
        assert calls(answer) == expected
        assert answer[-1].reason == ("calls" if expected else "stop")
        assert not expected or [event.repairs for event in answer if isinstance(event, CallReady)] == [("in-reasoning",)]


@pytest.mark.req("R213")
async def test_a_thought_is_told_from_text():
    local, _ = model("<think>\nHm.\n</think>\n\nYes.")
    answer = await events(local, ASK)
    assert ["".join(event.text for event in answer if isinstance(event, kind)) for kind in (Thought, Text)] == ["Hm.", "Yes."]


async def test_a_tool_that_is_not_there_cannot_be_chosen():
    local, _ = model(CALL)
    with pytest.raises(UnknownName, match="get_time"):
        await events(local, replace(ASK, choice=Choice.only("get_time")))
    with pytest.raises(UsageError, match="no tools"):
        await events(local, Request((Message.user("Hi"),), choice=Choice("required")))


async def test_a_token_that_frames_messages_ends_the_answer_and_is_not_shown():
    engine = Scripted(["Hello.<|im_start|>user\nAnd now?"], specials={"<|im_start|>": 1, "<|im_end|>": 2, "<tool_call>": 3})
    local = LocalModel(engine, format_named("hermes"), Template(CHATML))
    answer = await events(local, Request((Message.user("Hi!"),)))
    assert "".join(event.text for event in answer if isinstance(event, Text)) == "Hello."
    assert isinstance(answer[-1], Stopped) and answer[-1].reason == "stop"


async def test_an_answer_begins_with_the_cost_of_its_prompt():
    local, _ = model("Hello there")
    first, *_, last = await events(local, ASK)
    assert isinstance(first, Started) and isinstance(last, Stopped)
    assert first.usage.prompt == last.usage.prompt == await local.count(ASK) > 0
    assert first.usage.completion == 0


async def test_tokens_of_reasoning_are_counted_apart():
    local, engine = model("<think>\nOne, two, three.\n</think>\n\nSix.")
    last = (await events(local, Request((Message.user("Sum?"),))))[-1]
    assert isinstance(last, Stopped)
    assert last.usage.reasoning == await engine.count("One, two, three.")
    assert last.usage.reasoning < last.usage.completion


async def test_an_answer_without_reasoning_has_no_tokens_of_it():
    local, _ = model("Six.")
    last = (await events(local, ASK))[-1]
    assert isinstance(last, Stopped) and last.usage.reasoning == 0


async def test_a_prefilled_answer_is_continued_and_not_repeated():
    local, engine = model(" there.")
    request = Request((Message.user("Greet."), Message.assistant("Hello")), prefill=True)
    answer = await events(local, request)
    assert engine.asked[0].prompt.text.endswith("<|im_start|>assistant\nHello")
    assert "".join(event.text for event in answer if isinstance(event, Text)) == " there."
    plain = replace(request, prefill=False)
    await events(local, plain)
    assert engine.asked[1].prompt.text.endswith("Hello<|im_end|>\n<|im_start|>assistant\n")


async def test_a_prefilled_call_is_read_from_its_beginning():
    local, _ = model(CALL[20:])
    answer = await events(local, replace(ASK, messages=(*ASK.messages, Message.assistant(CALL[:20])), prefill=True))
    assert calls(answer) == [("get_weather", {"city": "Paris"})]
    assert not any(isinstance(event, Text) for event in answer)


async def test_prefilled_text_stands_behind_the_reasoning_that_the_template_opens():
    engine = Scripted([" three."], repeat=True)
    opening = CHATML.replace("<|im_start|>assistant\n' }}", "<|im_start|>assistant\n<think>\n' }}")
    local = LocalModel(engine, format_named("hermes"), Template(opening))
    request = Request((Message.user("Sum?"), Message.assistant("It is", reasoning="1 + 2")), prefill=True)
    answer = await events(local, request)
    assert engine.asked[0].prompt.text.endswith("assistant\n<think>\n1 + 2\n</think>\n\nIt is")
    assert [event for event in answer if isinstance(event, Text | Thought)] == [Text(" thr"), Text("ee.")]


async def test_a_history_that_goes_on_behind_the_prefilled_words_has_nothing_to_continue():
    local, engine = model("Fine.")
    called = (Message.assistant("Let me see."), Message.user("Well?"))
    await events(local, Request((Message.user("Weather?"), *called), prefill=True))
    assert engine.asked[0].prompt.text.endswith("<|im_start|>assistant\n")
