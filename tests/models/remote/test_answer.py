"""What other servers break, fixed: each with what was fixed, and with what could not be."""

import json
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from callsmith.core.events import CallArguments, CallStarted, Report
from callsmith.core.values import Call, Choice, Message, Output, Sampling, Tool
from callsmith.wire.upstream.quirks import Quirks
from tests.models.remote.scripted import (
    ASK,
    answer,
    call_delta,
    calls_of,
    chat,
    end_of,
    lines,
    made_calls,
    refusal,
    remote,
    repairs_of,
    sse,
    text_of,
    thoughts_of,
)
from tests.scripted_server import http, scripted

BONN = ("weather", {"city": "Bonn"})
CALL = call_delta("weather", '{"city": "Bonn"}')


async def test_a_native_call_needs_no_repair() -> None:
    async with scripted(chat({"content": "One moment."}, CALL, finish="tool_calls", usage={"prompt_tokens": 9})) as server:
        events = await answer(remote(server))
    assert text_of(events) == "One moment."
    assert calls_of(events) == [BONN]
    assert repairs_of(events) == [()]
    assert (end_of(events).reason, end_of(events).usage.prompt, end_of(events).report) == ("calls", 9, Report())
    assert made_calls(events)[0].id == "call_1"


AS_TEXT = {
    "hermes": '<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>',
    "qwen3-coder": "<tool_call>\n<function=weather>\n<parameter=city>\nBonn\n</parameter>\n</function>\n</tool_call>",
    "mistral": '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Bonn"}, "id": "abcdefghi"}]',
    "llama": '<|python_tag|>{"name": "weather", "parameters": {"city": "Bonn"}}',
    "deepseek": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Bonn"}'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "pythonic": "[weather(city='Bonn')]",
    "bare": '{"name": "weather", "arguments": {"city": "Bonn"}}',
    "fenced": '```json\n{"name": "weather", "arguments": {"city": "Bonn"}}\n```',
    "plain": 'weather(city="Bonn")',
    "thoughtful": '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>',
}


@pytest.mark.parametrize("size", [3, 1000])
@pytest.mark.parametrize("how", AS_TEXT)
@pytest.mark.req("R141")
async def test_a_call_that_comes_as_text_is_a_call(how: str, size: int) -> None:
    text = AS_TEXT[how]
    pieces = [{"content": text[at : at + size]} for at in range(0, len(text), size)]
    async with scripted(chat(*pieces)) as server:
        events = await answer(remote(server))
    assert calls_of(events) == [BONN]
    assert text_of(events) == ""
    assert thoughts_of(events) == ("Hm." if how == "thoughtful" else "")
    assert [repairs[-1] for repairs in repairs_of(events)] == ["as-text"]
    assert end_of(events).reason == "calls"
    assert made_calls(events)[0].id.startswith(("call_", "abcdefghi"))


@pytest.mark.parametrize(
    "text",
    [
        "Use `weather(city=1)`, then:\n```python\nweather(city='Bonn')\n```\nThat is all.",
        "```json\n{\"a\": 1}\n```",
        "The list is [1, 2, 3] and the object {\"name\": \"Ann\"}.",
        "we",
        "weather is nice today",
        "  indented\n\n\ttext \n",
        "<answer>yes</answer> <response>no</response>",
    ],
)  # fmt: skip
async def test_text_that_is_no_call_comes_as_it_was_written(text: str) -> None:
    async with scripted(chat(*({"content": letter} for letter in text))) as server:
        events = await answer(remote(server))
    assert (text_of(events), calls_of(events)) == (text, [])


async def test_where_no_tools_are_offered_text_is_text() -> None:
    async with scripted(chat({"content": AS_TEXT["hermes"]})) as server:
        events = await answer(remote(server), tools=())
    assert (text_of(events), calls_of(events)) == (AS_TEXT["hermes"], [])


async def test_a_provider_that_never_writes_calls_as_text_is_not_read_again() -> None:
    async with scripted(chat({"content": AS_TEXT["hermes"]})) as server:
        events = await answer(remote(server, provider="openai"))
    assert (text_of(events), calls_of(events)) == (AS_TEXT["hermes"], [])


@pytest.mark.parametrize(
    ("deltas", "repairs"),
    [
        ([call_delta("weather", '{"city": "Bonn"}', None)], ("missing-id",)),
        ([call_delta("weather", {"city": "Bonn"})], ("arguments-object",)),
        ([call_delta("Weather", '{"city": "Bonn"}')], ("other-name",)),
        ([call_delta("functions.weather", '{"city": "Bonn"}')], ("other-name",)),
    ],
)
async def test_a_call_is_fixed_and_the_repair_named(deltas: list[Any], repairs: tuple[str, ...]) -> None:
    async with scripted(chat(*deltas, finish="tool_calls")) as server:
        events = await answer(remote(server))
    assert calls_of(events) == [BONN]
    assert repairs_of(events) == [repairs]
    started = next(event for event in events if isinstance(event, CallStarted))
    assert started.id == made_calls(events)[0].id != ""
    assert started.name == "weather"


async def test_ids_that_come_again_are_replaced() -> None:
    earlier = (
        Message.user("a"),
        Message.assistant(calls=[Call("add", {"a": 1, "b": 2}, "call_1")]),
        Message("tool", "3", call_id="call_1"),
    )
    twice = [call_delta("weather", '{"city": "Bonn"}', "call_1"), call_delta("weather", '{"city": "Bonn"}', "call_2", 1)]
    again = [*twice, call_delta("weather", '{"city": "Ulm"}', "call_2", 2)]
    async with scripted(chat(*again, finish="tool_calls")) as server:
        events = await answer(remote(server), messages=(*earlier, Message.user("b")))
    ids = [call.id for call in made_calls(events)]
    assert len({*ids, "call_1"}) == 4
    assert repairs_of(events) == [("repeated-id",), (), ("repeated-id",)]


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "function_call", "whatever_comes_next", "eos"])
async def test_an_answer_with_calls_ends_with_calls_whatever_the_upstream_says(reason: str) -> None:
    async with scripted(chat(CALL, finish=reason)) as server:
        assert end_of(await answer(remote(server))).reason == "calls"
    async with scripted(chat({"content": "Hi"}, finish=reason)) as server:
        assert end_of(await answer(remote(server))).reason == "stop"


async def test_a_call_with_invalid_arguments_is_asked_for_again() -> None:
    wrong = chat(
        call_delta("weather", '{"town": "Bonn"}'), finish="tool_calls", usage={"prompt_tokens": 5, "completion_tokens": 2}
    )
    async with scripted(wrong, chat(call_delta("weather", '{"city": "Bonn"}', "call_9"), finish="tool_calls")) as server:
        events = await answer(remote(server))
    assert calls_of(events) == [BONN]
    assert made_calls(events)[0].id == "call_1"
    assert end_of(events).report == Report(retries=1)
    again = server.asked[1]
    assert again["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert "invalid_arguments" in again["messages"][-1]["content"]
    assert sum(isinstance(event, CallStarted) for event in events) == 1


async def test_a_text_that_does_not_fit_its_grammar_is_asked_for_again() -> None:
    grammar = {"syntax": "lark", "definition": 'start: NUMBER ("+" NUMBER)*\nNUMBER: /[0-9]+/'}
    text = {"type": "string", "x-grammar": grammar}
    schema = {"type": "object", "properties": {"input": text}, "required": ["input"], "additionalProperties": False}
    tool = Tool("sum", "", schema, strict=True, kind="custom")
    wrong = chat(call_delta("sum", '{"input": "one and two"}'), finish="tool_calls")
    async with scripted(wrong, chat(call_delta("sum", '{"input": "1+2"}', "call_9"), finish="tool_calls")) as server:
        events = await answer(remote(server), tools=(tool,))
    assert [call.arguments for call in made_calls(events)] == [{"input": "1+2"}]
    assert end_of(events).report.retries == 1
    assert "does not fit its grammar: at character 0, 'one and two'" in server.asked[1]["messages"][-1]["content"]


@pytest.mark.req("R144")
async def test_a_call_of_another_tool_than_the_named_one_is_asked_for_again_with_that_alone() -> None:
    other = chat(call_delta("add", '{"a": 1, "b": 2}'), finish="tool_calls")
    async with scripted(other, chat(call_delta("weather", '{"city": "Bonn"}', "call_9"), finish="tool_calls")) as server:
        events = await answer(remote(server), choice=Choice.only("weather"))
    assert calls_of(events) == [BONN]
    assert end_of(events).report.retries == 1
    first, again = server.asked
    assert [tool["function"]["name"] for tool in first["tools"]] == ["weather", "add"]
    assert [tool["function"]["name"] for tool in again["tools"]] == ["weather"]
    assert "add may not be called now, but weather" in again["messages"][-1]["content"]


async def test_lost_arguments_are_asked_for_again() -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
    lost = sse(
        {"type": "message_start", "message": {"usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
        done=False,
    )
    whole = {"type": "message", "role": "assistant", "stop_reason": "tool_use", "usage": {"input_tokens": 3, "output_tokens": 1}}
    read_events = http(json.dumps({**whole, "content": [{**block, "input": {"city": "Bonn"}}]}).encode())
    async with scripted(lost, read_events) as server:
        events = await answer(remote(server, "anthropic"))
    assert calls_of(events) == [BONN]
    assert end_of(events).report.retries == 1


async def test_where_the_upstream_is_trusted_arguments_stream() -> None:
    pieces = [
        call_delta("weather", ""),
        *({"tool_calls": [{"index": 0, "function": {"arguments": item}}]} for item in ('{"ci', 'ty": ', '"Bonn"}')),
    ]
    async with scripted(chat(*pieces, finish="tool_calls")) as server:
        events = await answer(remote(server, provider="openai"))
    assert [event.text for event in events if isinstance(event, CallArguments)] == ['{"ci', 'ty": ', '"Bonn"}']


@pytest.mark.req("R144")
async def test_a_required_call_that_does_not_come_is_asked_for_once_more() -> None:
    first = chat({"content": "I would call the weather."}, usage={"prompt_tokens": 5, "completion_tokens": 4})
    async with scripted(first, chat(CALL, finish="tool_calls", usage={"prompt_tokens": 6, "completion_tokens": 3})) as server:
        events = await answer(remote(server), choice=Choice("required"))
    assert (calls_of(events), text_of(events)) == ([BONN], "")
    assert end_of(events).report == Report(retries=1)
    assert (end_of(events).usage.prompt, end_of(events).usage.completion) == (11, 7)
    assert server.asked[0]["tool_choice"] == "required"
    assert server.asked[1]["messages"][-2:] == [
        {"role": "assistant", "content": "I would call the weather."},
        {"role": "user", "content": "This is no tool call, and one is required. Call one of these tools: weather, add."},
    ]


@pytest.mark.req("R144")
async def test_a_required_call_that_never_comes_is_said() -> None:
    async with scripted(chat({"content": "No."}), chat({"content": "Never."})) as server:
        events = await answer(remote(server), choice=Choice("required"))
    assert (text_of(events), calls_of(events)) == ("No.", [])
    assert end_of(events).report == Report(
        retries=1, notices=("a call was required, and gpt answered without one, also when asked again",)
    )
    assert len(server.asked) == 2


async def test_text_before_a_required_call_is_not_lost() -> None:
    async with scripted(chat({"content": "One "}, {"content": "moment."}, CALL, finish="tool_calls")) as server:
        events = await answer(remote(server), choice=Choice("required"))
    assert (text_of(events), calls_of(events)) == ("One moment.", [BONN])


async def test_after_the_one_call_that_is_allowed_there_is_none() -> None:
    two = [CALL, call_delta("add", '{"a": 1, "b": 2}', "call_2", 1)]
    async with scripted(chat(*two, finish="tool_calls")) as server:
        events = await answer(remote(server), parallel=False)
    assert calls_of(events) == [BONN]


async def test_where_no_call_is_allowed_there_is_none() -> None:
    async with scripted(chat(CALL, {"content": "Hi"}, finish="tool_calls")) as server:
        events = await answer(remote(server), choice=Choice("none"))
    assert (text_of(events), calls_of(events), end_of(events).reason) == ("Hi", [], "stop")


NO_TOOLS = [
    '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    "registry.ollama.ai/library/gemma2:2b does not support tools",
    "tools param requires --jinja flag",
    "This model does not support function calling",
]


@pytest.mark.parametrize("message", NO_TOOLS)
@pytest.mark.req("R144")
async def test_an_upstream_without_tools_is_shown_them_in_its_prompt(message: str) -> None:
    says = '<tool_call>\n<name>weather</name>\n<arguments>{"city": "Bonn"}</arguments>\n</tool_call>'
    async with scripted(refusal("400 Bad Request", message), chat({"content": says}), chat({"content": "Fine."})) as server:
        model = remote(server)
        events = [event async for event in model.stream(ASK)]
        call = made_calls(events)[0]
        history = (*ASK.messages, Message.assistant(calls=[call]), Message("tool", "sun", call_id=call.id, name="weather"))
        again = await answer(model, messages=history)
    assert calls_of(events) == [BONN]
    assert repairs_of(events) == [()]
    assert end_of(events).report.notices == ("the upstream takes no tools here: they are shown to the model in its prompt",)
    asked, asked_again = server.asked[1], server.asked[2]
    assert "tools" not in asked and "tool_choice" not in asked
    assert "- weather: The weather in a city." in asked["messages"][0]["content"]
    assert "<name>weather</name>" in asked_again["messages"][-2]["content"]
    assert asked_again["messages"][-1] == {"role": "user", "content": "<tool_response>\nsun\n</tool_response>"}
    assert text_of(again) == "Fine."
    assert len(server.asked) == 3  # that it takes no tools is remembered


@pytest.mark.parametrize(("fields", "key"), [("vllm", "structured_outputs"), ("sglang", "ebnf"), ("llama-server", "grammar")])
async def test_a_prompted_call_that_is_required_is_held_by_a_grammar_where_the_server_takes_one(fields: Any, key: str) -> None:
    says = '<tool_call>\n<name>weather</name>\n<arguments>{"city": "Bonn"}</arguments>\n</tool_call>'
    async with scripted(chat({"content": says})) as server:
        events = await answer(remote(server, quirks=Quirks(tools=False, grammar=fields)), choice=Choice.only("weather"))
    assert calls_of(events) == [BONN]
    assert "<name>" in json.dumps(server.asked[0][key])
    assert "add" not in json.dumps(server.asked[0][key])


async def test_an_answer_that_does_not_fit_its_schema_is_asked_for_again() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with scripted(chat({"content": '{"n": "x"}'}), chat({"content": '{"n": 3}'})) as server:
        events = await answer(remote(server), tools=(), output=Output(schema))
    assert text_of(events) == '{"n": 3}'
    assert end_of(events).report.retries == 1


@pytest.mark.parametrize("says", ['```json\n{"n": 3}\n```', '\n```\n{"n": 3}\n```\n'])
async def test_a_fence_around_an_output_is_taken_off(says: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with scripted(chat({"content": says})) as server:
        events = await answer(remote(server), tools=(), output=Output(schema, strict=True))
    assert text_of(events) == '{"n": 3}'
    assert end_of(events).report.retries == 0


async def test_an_invalid_output_in_a_fence_is_asked_for_again() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with scripted(chat({"content": '```json\n{"n": "x"}\n```'}), chat({"content": '```json\n{"n": 3}\n```'})) as server:
        events = await answer(remote(server), tools=(), output=Output(schema, strict=True))
    assert text_of(events) == '{"n": 3}'
    assert end_of(events).report.retries == 1


async def test_a_schema_that_the_upstream_cannot_hold_goes_into_the_prompt() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with scripted(chat({"content": '{"n": 3}'})) as server:
        await answer(remote(server, provider="deepseek"), tools=(), output=Output(schema))
    assert server.asked[0]["response_format"] == {"type": "json_object"}
    assert '"integer"' in server.asked[0]["messages"][0]["content"]


async def test_what_an_api_does_not_take_is_left_out_and_said() -> None:
    sampling = Sampling(temperature=0.5, top_k=5, min_p=0.1, seed=3, max_tokens=9)
    async with scripted(chat({"content": "Hi"})) as server:
        events = await answer(remote(server, provider="openai"), tools=(), sampling=sampling)
    sent = server.asked[0]
    assert (sent["temperature"], sent["seed"], sent["max_completion_tokens"]) == (0.5, 3, 9)
    assert not {"top_k", "min_p", "max_tokens"} & set(sent)
    assert end_of(events).report.notices == ("top_k: this API does not take it", "min_p: this API does not take it")


async def test_lines_of_ollama_are_read_and_ids_made() -> None:
    call = {"function": {"name": "weather", "arguments": {"city": "Bonn"}}}
    rows = [
        {"message": {"role": "assistant", "content": "", "thinking": "Hm."}, "done": False},
        {"message": {"role": "assistant", "content": "", "tool_calls": [call, call]}, "done": False},
        {
            "message": {"role": "assistant", "content": ""},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 4,
            "eval_count": 2,
        },
    ]
    async with scripted(lines(*rows)) as server:
        events = await answer(remote(server, "ollama", provider="ollama"))
    assert calls_of(events) == [BONN, BONN]
    assert len({call.id for call in made_calls(events)}) == 2
    assert thoughts_of(events) == "Hm."
    assert server.paths == ["/api/chat"]


@pytest.mark.req("R61")
async def test_where_there_are_native_calls_the_text_is_not_searched_for_others() -> None:
    native = call_delta("add", '{"a": 1, "b": 2}')
    for deltas in ([{"content": AS_TEXT["hermes"]}, native], [native, {"content": AS_TEXT["hermes"]}]):
        async with scripted(chat(*deltas, finish="tool_calls")) as server:
            events = await answer(remote(server))
        assert (calls_of(events), text_of(events)) == ([("add", {"a": 1, "b": 2})], "")


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_a_stop_string_that_a_server_leaves_in_the_text_ends_it(size: int) -> None:
    text = "alpha beta gamma delta"
    pieces = [{"content": text[at : at + size]} for at in range(0, len(text), size)]
    async with scripted(chat(*pieces)) as server:
        events = await answer(remote(server), replace(ASK, sampling=Sampling(stop=("gamma", "nowhere"))))
    assert text_of(events) == "alpha beta "
    assert (end_of(events).reason, end_of(events).matched) == ("stop", "gamma")


async def test_the_beginning_of_a_stop_string_is_text() -> None:
    async with scripted(chat({"content": "alpha gam"})) as server:
        events = await answer(remote(server), replace(ASK, sampling=Sampling(stop=("gamma",))))
    assert (text_of(events), end_of(events).matched) == ("alpha gam", "")
