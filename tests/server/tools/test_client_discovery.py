"""A client with more tools than the model should be shown: the model searches for them, and the client runs what it calls."""

from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.types import ServerToolUseBlock, ToolSearchToolResultBlock, ToolUseBlock
from openai.types.responses import ResponseFunctionToolCall, ResponseToolSearchCall, ResponseToolSearchOutputItem

from callsmith.core.choice import FIND_TOOLS, found_names
from callsmith.core.values import Call
from callsmith.server.app import create_app
from callsmith.server.settings import Llm, Settings
from tests.fakes import FakeModel
from tests.runtime.many import MANY
from tests.server.asking import HI, WEATHER, calls, client, http, says

SEARCH = Call(FIND_TOOLS, {"query": "current weather"}, "s1")
BONN = Call("current_weather", {"city": "Bonn"}, "b1")
CHAT: Any = [
    {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}}
    for tool in MANY
]
DEFERRED: Any = [
    {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters), "defer_loading": True}
    for tool in MANY
]
BM25: Any = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
REGEX: Any = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
CLOCK: Any = {"name": "clock", "description": "The time.", "input_schema": {"type": "object"}}
FEW = Settings(llm=Llm(client_tools_shown=20))


def names(model: FakeModel) -> list[list[str]]:
    return [[tool.name for tool in request.tools] for request in model.asked]


def anthropic(model: FakeModel, **options: Any) -> AsyncAnthropic:
    app = create_app({"m": model}, **options)
    return AsyncAnthropic(base_url="http://localhost", api_key="ignored", http_client=http(app), max_retries=0)


async def message(model: FakeModel, *tools: Any, messages: Any = HI, **sent: Any) -> Any:
    return await anthropic(model).messages.create(model="m", max_tokens=100, messages=messages, tools=tools, **sent)


# --- by our own setting ---------------------------------------------------------------------------------------------------


async def test_where_a_client_brings_too_many_tools_only_the_search_is_shown_and_what_it_finds_is_the_clients_to_run():
    model = FakeModel(calls(SEARCH), calls(BONN), says("Sunny."))
    chat = client(model, settings=FEW).chat.completions
    answer = (await chat.create(model="m", messages=HI, tools=CHAT)).choices[0]
    assert answer.finish_reason == "tool_calls"
    assert [call.function.name for call in answer.message.tool_calls or []] == ["current_weather"]
    assert names(model) == [[FIND_TOOLS], [FIND_TOOLS, "current_weather"]]

    result = {"role": "tool", "tool_call_id": "b1", "content": "sun"}
    history: Any = [*HI, answer.message.model_dump(exclude_none=True), result]
    answer = (await chat.create(model="m", messages=history, tools=CHAT)).choices[0]
    assert answer.message.content == "Sunny."
    assert names(model)[-1] == [FIND_TOOLS, "current_weather"]
    # The search that the client has not seen stands in the history again.
    assert [message.role for message in model.asked[-1].messages] == ["user", "assistant", "tool", "assistant", "tool"]


async def test_a_client_that_brings_few_tools_has_them_all_shown_and_its_calls_streamed():
    model = FakeModel(says("Hm."))
    await client(model, settings=FEW).chat.completions.create(model="m", messages=HI, tools=[WEATHER])
    await client(model).chat.completions.create(model="m", messages=HI, tools=CHAT)
    assert names(model) == [["weather"], [tool.name for tool in MANY]]


async def test_a_named_tool_is_shown_without_a_search():
    model = FakeModel(calls(BONN))
    choice: Any = {"type": "function", "function": {"name": "current_weather"}}
    chat = client(model, settings=FEW).chat.completions
    answer = await chat.create(model="m", messages=HI, tools=CHAT, tool_choice=choice)
    assert names(model) == [["current_weather"]]
    assert answer.choices[0].message.tool_calls


async def test_a_required_call_is_not_the_search():
    model = FakeModel(calls(SEARCH), calls(BONN))
    answer = await client(model, settings=FEW).chat.completions.create(model="m", messages=HI, tools=CHAT, tool_choice="required")
    assert [call.function.name for call in answer.choices[0].message.tool_calls or []] == ["current_weather"]
    assert [request.choice.mode for request in model.asked] == ["required", "required"]
    assert names(model) == [[FIND_TOOLS], ["current_weather"]]


async def test_without_calls_nothing_is_searched():
    model = FakeModel(says("Hm."))
    await client(model, settings=FEW).chat.completions.create(model="m", messages=HI, tools=CHAT, tool_choice="none")
    assert len(names(model)[0]) == len(MANY)


# --- Anthropic's tool search ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", [BM25, REGEX])
async def test_a_deferred_tool_is_found_and_the_search_stands_in_the_answer(variant: Any):
    model = FakeModel(calls(SEARCH), calls(BONN))
    answer = await message(model, variant, CLOCK, *DEFERRED)
    search, references, use = answer.content
    assert isinstance(search, ServerToolUseBlock) and search.name == variant["name"]
    assert search.input == {"query": "current weather"}
    assert isinstance(references, ToolSearchToolResultBlock) and references.tool_use_id == search.id
    assert references.content.type == "tool_search_tool_search_result"
    assert references.content.tool_references[0].tool_name == "current_weather"
    assert isinstance(use, ToolUseBlock) and (use.name, use.input) == ("current_weather", {"city": "Bonn"})
    assert answer.stop_reason == "tool_use"
    assert names(model)[0] == [FIND_TOOLS, "clock"]
    assert names(model)[1][:2] == [FIND_TOOLS, "clock"] and "current_weather" in names(model)[1]


async def test_the_blocks_come_back_in_a_history_and_what_was_found_is_still_shown():
    model = FakeModel(calls(SEARCH), calls(BONN), says("Sunny."))
    tools = (BM25, CLOCK, *DEFERRED)
    first = await message(model, *tools)
    result = {"type": "tool_result", "tool_use_id": "b1", "content": "sun"}
    history = [*HI, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    answer = await message(model, *tools, messages=history)
    assert answer.content[0].text == "Sunny."
    messages = model.asked[-1].messages
    assert [item.role for item in messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert messages[1].calls[0].name == FIND_TOOLS and messages[2].name == FIND_TOOLS
    assert "current_weather" in found_names(messages[2].content)
    assert "current_weather" in names(model)[-1]


async def test_the_block_of_a_search_has_only_the_fields_it_should_have():
    answer = await message(FakeModel(calls(SEARCH), calls(BONN)), BM25, *DEFERRED)
    block_found = next(block for block in answer.content if block.type == "tool_search_tool_result")
    assert set(block_found.model_dump(exclude_unset=True)) == {"type", "tool_use_id", "content"}


async def test_streamed_it_is_the_same():
    model = FakeModel([*says("Let me see.")[:-1], *calls(SEARCH)], calls(BONN))
    sent = {"model": "m", "max_tokens": 100, "messages": HI, "tools": [BM25, *DEFERRED]}
    async with anthropic(model).messages.stream(**sent) as stream:
        kinds = [event.content_block.type async for event in stream if event.type == "content_block_start"]
        whole = await stream.get_final_message()
    assert kinds == ["text", "server_tool_use", "tool_search_tool_result", "tool_use"]
    assert whole.content[1].input == {"query": "current weather"}
    assert whole.content[3].input == {"city": "Bonn"}


async def test_a_deferred_tool_that_is_chosen_is_loaded_at_once():
    model = FakeModel(calls(BONN))
    answer = await message(model, BM25, CLOCK, *DEFERRED, tool_choice={"type": "tool", "name": "current_weather"})
    assert [block.type for block in answer.content] == ["tool_use"]
    assert names(model) == [["clock", "current_weather"]]


async def test_a_tool_that_was_called_before_is_shown():
    use = {"type": "tool_use", "id": "b1", "name": "current_weather", "input": {"city": "Bonn"}}
    result = {"type": "tool_result", "tool_use_id": "b1", "content": "sun"}
    history = [*HI, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    model = FakeModel(says("Sunny."))
    await message(model, BM25, *DEFERRED, messages=history)
    assert names(model) == [[FIND_TOOLS, "current_weather"]]


async def test_a_result_without_its_search_is_refused_by_name():
    model = FakeModel(says("Hm."))
    search_result = {"type": "tool_search_tool_search_result", "tool_references": []}
    block = {"type": "tool_search_tool_result", "tool_use_id": "s9", "content": search_result}
    with pytest.raises(Exception, match="there is no server_tool_use 's9' before it"):
        await message(model, BM25, *DEFERRED, messages=[*HI, {"role": "assistant", "content": [block]}, *HI])


async def test_without_a_search_tool_nothing_is_deferred():
    model = FakeModel(says("Hm."))
    await message(model, CLOCK, *DEFERRED)
    assert names(model) == [["clock", *(tool.name for tool in MANY)]]


# --- OpenAI's tool search -------------------------------------------------------------------------------------------------

RESPONSES: Any = [{"type": "function", "strict": False, "defer_loading": True, **tool["function"]} for tool in CHAT]
PLAIN: Any = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}}, "strict": False}


async def respond(model: FakeModel, *tools: Any, **sent: Any) -> Any:
    return await client(model).responses.create(model="m", **{"input": "hi", "tools": list(tools), **sent})


async def test_a_deferred_function_is_found_and_the_search_is_two_items_of_the_response():
    model = FakeModel(calls(SEARCH), calls(BONN))
    answer = await respond(model, {"type": "tool_search"}, PLAIN, *RESPONSES)
    search, references, call = answer.output
    assert isinstance(search, ResponseToolSearchCall) and search.arguments == {"query": "current weather"}
    assert (search.execution, search.status) == ("server", "completed")
    assert isinstance(references, ResponseToolSearchOutputItem) and references.tools[0].name == "current_weather"
    assert isinstance(call, ResponseFunctionToolCall) and call.name == "current_weather"
    assert names(model)[0] == [FIND_TOOLS, "clock"] and "current_weather" in names(model)[1]


async def test_its_items_come_back_by_reference_and_in_the_input():
    model = FakeModel(calls(SEARCH), calls(BONN), says("Sunny."), says("Sunny again."))
    tools: Any = [{"type": "tool_search"}, *RESPONSES]
    asking = client(model).responses
    first = await asking.create(model="m", input="hi", tools=tools)
    output: Any = {"type": "function_call_output", "call_id": "b1", "output": "sun"}
    stored = await asking.create(model="m", previous_response_id=first.id, input=[output], tools=tools)
    whole: Any = [*HI, *(item.model_dump(exclude_none=True) for item in first.output), output]
    brought = await asking.create(model="m", input=whole, tools=tools)
    assert (stored.output_text, brought.output_text) == ("Sunny.", "Sunny again.")
    for request in model.asked[2:]:
        assert [turn.role for turn in request.messages] == ["user", "assistant", "tool", "assistant", "tool"]
        assert found_names(request.messages[2].content)[0] == "current_weather"
        assert "current_weather" in [tool.name for tool in request.tools]


async def test_functions_in_a_namespace_are_found_by_their_namespace():
    model = FakeModel(calls(SEARCH), calls(Call("skies__current_weather", {"city": "Bonn"}, "b1")))
    inner = [tool for tool in RESPONSES if "weather" in tool["name"]]
    answer = await respond(
        model, {"type": "tool_search"}, {"type": "namespace", "name": "skies", "description": "", "tools": inner}
    )
    _, references, call = answer.output
    assert references.tools[0].name == "skies" and "current_weather" in [tool.name for tool in references.tools[0].tools]
    assert (call.namespace, call.name) == ("skies", "current_weather")


async def test_streamed_its_items_are_added_and_done():
    model = FakeModel(calls(SEARCH), calls(BONN))
    tools: Any = [{"type": "tool_search"}, *RESPONSES]
    stream = await client(model).responses.create(model="m", input="hi", tools=tools, stream=True)
    sent = [(event.type, event.item.type) async for event in stream if event.type.startswith("response.output_item")]
    added, done = "response.output_item.added", "response.output_item.done"
    kinds = ("tool_search_call", "tool_search_output", "function_call")
    assert sent == [(step, kind) for kind in kinds for step in (added, done)]


CLIENT: Any = {"type": "tool_search", "execution": "client", "description": "Find tools.", "parameters": None}


async def test_a_search_that_the_client_runs_is_offered_and_defers_nothing():
    model = FakeModel(says("Hm."))
    await respond(model, CLIENT, *RESPONSES)
    assert names(model) == [["tool_search", *(tool.name for tool in MANY)]]


async def test_what_the_client_finds_is_offered_from_then_on():
    found: Any = {"type": "namespace", "name": "skies", "description": "", "tools": RESPONSES[:1]}
    name = RESPONSES[0]["name"]
    called = Call(f"skies__{name}", {}, "b1")
    model = FakeModel(calls(Call("tool_search", {"query": "weather"}, "s1")), calls(called), says("Sunny."))
    asking = client(model).responses
    first = await asking.create(model="m", input="hi", tools=[CLIENT])
    (search,) = first.output
    assert isinstance(search, ResponseToolSearchCall)
    assert (search.execution, search.call_id, search.arguments, search.status) == (
        "client",
        "s1",
        {"query": "weather"},
        "completed",
    )
    output: Any = {"type": "tool_search_output", "call_id": "s1", "execution": "client", "status": "completed", "tools": [found]}
    second = await asking.create(model="m", previous_response_id=first.id, input=[output], tools=[CLIENT])
    (call,) = second.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.namespace, call.name) == ("skies", name)
    assert names(model)[1] == ["tool_search", f"skies__{name}"]
    assert found_names(model.asked[1].messages[-1].content) == [f"skies__{name}"]
    ran: Any = {"type": "function_call_output", "call_id": "b1", "output": "sun"}
    last = await asking.create(model="m", previous_response_id=second.id, input=[ran], tools=[CLIENT])
    assert (last.output_text, names(model)[2]) == ("Sunny.", ["tool_search", f"skies__{name}"])
