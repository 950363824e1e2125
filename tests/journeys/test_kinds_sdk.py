"""Tools that are no functions, with the vendors' own clients: their calls come back in the client's own kind of block or item."""

from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic.tools import BetaAsyncLocalFilesystemMemoryTool
from openai import AsyncOpenAI
from openai.types.responses import response_output_item

from callsmith.core.values import Call
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.models.local import LocalModel
from tests.journeys.scripts import CODE, FORMATS, HERMES, HI, WHOLE, app_of, calling, client_of, scripted_model
from tests.journeys.test_anthropic_sdk import client_of as anthropic_client_of
from tests.serving import served

PATCH = f"*** Begin Patch\n*** Add File: a.py\n{CODE}\n\t\u2028*** End Patch\n"
CUSTOM: Any = {"name": "apply_patch", "description": "Change files. Do not wrap it in JSON."}


def scripted(*replies: str, chunk: int = 3) -> tuple[Scripted, LocalModel]:
    engine = Scripted(replies, chunk=chunk)
    return engine, LocalModel(engine, HERMES, Template(CHATML))


def openai_client(*replies: str, chunk: int = 3) -> tuple[Scripted, AsyncOpenAI]:
    engine, model = scripted(*replies, chunk=chunk)
    return engine, client_of(app_of(model))


@pytest.mark.parametrize("chunk", (1, 7, WHOLE))
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.sampled
async def test_a_custom_tools_text_comes_back_raw_streamed_and_whole(name: str, chunk: int) -> None:
    format = format_named(name)
    text = write(format, [Call("apply_patch", {"input": PATCH}, fit_id("call_1", format.ids))], text="I patch it.")
    client = client_of(app_of(scripted_model(format, text, chunk)))
    body: Any = {"model": "m", "messages": HI, "tools": [{"type": "custom", "custom": CUSTOM}]}
    whole = (await client.chat.completions.create(**body)).choices[0]
    (call,) = whole.message.tool_calls or ()
    assert call.type == "custom"
    assert (call.custom.name, call.custom.input, whole.finish_reason) == ("apply_patch", PATCH, "tool_calls")
    pieces: list[Any] = []
    async for chunk_sent in await client.chat.completions.create(**body, stream=True):
        pieces += [piece.to_dict() for choice in chunk_sent.choices for piece in choice.delta.tool_calls or ()]
    assert (pieces[0]["type"], pieces[0]["custom"]) == ("custom", {"name": "apply_patch", "input": ""})
    assert "".join(piece["custom"]["input"] for piece in pieces) == PATCH
    assert len(pieces) > 10 or chunk > 1
    asked: Any = {"model": "m", "input": "hi", "tools": [{"type": "custom", **CUSTOM}]}
    response = await client.responses.create(**asked)
    item = response.output[-1]
    assert isinstance(item, openai.types.responses.ResponseCustomToolCall)
    assert (item.name, item.input) == ("apply_patch", PATCH)
    deltas, done = list[str](), list[str]()
    async with client.responses.stream(**asked) as stream:
        async for event in stream:
            if event.type == "response.custom_tool_call_input.delta":
                deltas.append(event.delta)
            elif event.type == "response.custom_tool_call_input.done":
                done.append(event.input)
        final = await stream.get_final_response()
    assert ("".join(deltas), done, final.output[-1].to_dict().get("input")) == (PATCH, [PATCH], PATCH)


async def test_a_custom_tools_result_is_read_and_the_model_goes_on() -> None:
    engine, client = openai_client(calling(Call("apply_patch", {"input": PATCH})), "Patched.")
    tools: Any = [{"type": "custom", **CUSTOM, "format": {"type": "text"}}]
    first = await client.responses.create(model="m", input="hi", tools=tools)
    (call,) = first.output
    assert call.type == "custom_tool_call"
    output: Any = [{"type": "custom_tool_call_output", "call_id": call.call_id, "output": "It fits."}]
    second = await client.responses.create(model="m", input=output, tools=tools, previous_response_id=first.id)
    assert second.output_text == "Patched."
    assert "It fits." in engine.asked[-1].prompt.text
    stored = await client.responses.input_items.list(second.id)
    assert [item.type for item in stored.data][:2] == ["custom_tool_call_output", "custom_tool_call"]


async def test_a_custom_tool_can_be_required_in_both_apis() -> None:
    _, client = openai_client(calling(Call("apply_patch", {"input": "a"})), calling(Call("apply_patch", {"input": "b"})))
    other: Any = {"type": "custom", "custom": {"name": "other"}}
    chosen: Any = {"type": "custom", "custom": {"name": "apply_patch"}}
    body: Any = {"model": "m", "messages": HI, "tools": [other, {"type": "custom", "custom": CUSTOM}]}
    answer = await client.chat.completions.create(**body, tool_choice=chosen)
    (call,) = answer.choices[0].message.tool_calls or ()
    assert call.type == "custom"
    assert call.custom.input == "a"
    flat: Any = [{"type": "custom", "name": "other"}, {"type": "custom", **CUSTOM}]
    allowed: Any = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "apply_patch"}]}
    response = await client.responses.create(model="m", input="hi", tools=flat, tool_choice=allowed)
    assert response.output[0].to_dict()["input"] == "b"


CALLED: dict[str, tuple[Any, Any, Any, Any, str]] = {  # the tool, its call, the item's fields, its result, what the model reads
    "local_shell": (
        {"type": "local_shell"},
        Call("local_shell", {"command": ["ls", "-l"], "timeout_ms": 500}),
        {"action": {"type": "exec", "command": ["ls", "-l"], "env": {}, "timeout_ms": 500}},
        {"output": '{"output": "a.txt"}'},
        "a.txt",
    ),
    "shell": (
        {"type": "shell", "environment": {"type": "local"}},
        Call("shell", {"commands": ["ls", "cat b"]}),
        {"action": {"commands": ["ls", "cat b"]}},
        {
            "output": [
                {"stdout": "a.txt\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                {"stdout": "", "stderr": "no such file\n", "outcome": {"type": "exit", "exit_code": 1}},
            ]
        },
        "a.txt\nno such file\nexit code: 1",
    ),
    "apply_patch": (
        {"type": "apply_patch"},
        Call("apply_patch", {"operation": {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b"}}),
        {"operation": {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b"}},
        {"status": "failed", "output": "it does not fit"},
        "Error: it does not fit",
    ),
    "computer_use_preview": (
        {"type": "computer_use_preview", "display_width": 800, "display_height": 600, "environment": "browser"},
        Call("computer", {"action": {"type": "click", "button": "left", "x": 3, "y": 4}}),
        {"action": {"type": "click", "button": "left", "x": 3, "y": 4}, "pending_safety_checks": []},
        None,
        "",
    ),
    "computer": (
        {"type": "computer"},
        Call("computer", {"actions": [{"type": "screenshot"}, {"type": "type", "text": "hi"}]}),
        {"actions": [{"type": "screenshot"}, {"type": "type", "text": "hi"}], "pending_safety_checks": []},
        None,
        "",
    ),
}


@pytest.mark.parametrize("streams", (False, True))
@pytest.mark.parametrize("kind", CALLED)
async def test_calls_come_back_as_the_items_of_their_kind_and_their_results_are_read(kind: str, streams: bool) -> None:
    tool, call, fields, result, read = CALLED[kind]
    engine, client = openai_client(calling(call, text="I do it."), "Done.")
    asked: Any = {"model": "m", "input": "hi", "tools": [tool]}
    if streams:
        async with client.responses.stream(**asked) as stream:
            added = [event.item.type async for event in stream if event.type == "response.output_item.added"]
            first = await stream.get_final_response()
        assert added == [item.type for item in first.output]
    else:
        first = await client.responses.create(**asked)
    message, item = first.output
    assert message.type == "message"
    assert item.type == {"computer_use_preview": "computer"}.get(kind, kind) + "_call"
    assert isinstance(item, response_output_item.ResponseOutputItem.__args__[0].__args__)  # pyright: ignore
    sent = item.to_dict()
    assert {key: sent[key] for key in fields} == fields
    assert (sent["status"], first.tools[0].type) == ("completed", kind)
    if result is None:
        return
    output: Any = {"type": f"{kind}_call_output", "call_id": sent["call_id"], **result}
    second = await client.responses.create(model="m", input=[output], tools=[tool], previous_response_id=first.id)
    assert second.output_text == "Done."
    assert read in engine.asked[-1].prompt.text


async def test_a_local_shells_output_may_name_its_call_by_its_own_id() -> None:
    engine, client = openai_client(calling(Call("local_shell", {"command": ["ls"]})), "Done.", "Done.")
    tools: Any = [{"type": "local_shell"}]
    first = await client.responses.create(model="m", input="hi", tools=tools)
    (item,) = first.output
    assert item.type == "local_shell_call"
    for id in (item.call_id, item.id):
        output: Any = {"type": "local_shell_call_output", "id": id, "output": f"listed {id}"}
        await client.responses.create(model="m", input=[output], tools=tools, previous_response_id=first.id)
        assert f"listed {id}" in engine.asked[-1].prompt.text


async def test_a_call_that_breaks_off_is_text_and_no_item_that_could_be_run() -> None:
    _, client = openai_client('<tool_call>\n{"name": "shell", "arguments": {"commands": ["rm -r')
    response = await client.responses.create(model="m", input="hi", tools=[{"type": "shell"}])
    assert {item.type for item in response.output} <= {"message"}


async def test_what_only_the_vendor_runs_is_refused_by_name_and_what_clients_send_unasked_is_left_out_with_a_notice() -> None:
    _, client = openai_client("Hello.")
    with pytest.raises(openai.BadRequestError, match=r"tools\.0\.type: 'code_interpreter' runs at OpenAI only: offer a tool"):
        await client.responses.create(model="m", input="hi", tools=[{"type": "code_interpreter", "container": {"type": "auto"}}])
    with pytest.raises(openai.BadRequestError, match="'web_search' runs at OpenAI only"):
        await client.responses.create(model="m", input="hi", tools=[{"type": "web_search"}])
    asked: Any = [{"type": "web_search", "external_web_access": False}]  # as Codex sends it
    response = await client.responses.create(model="m", input="hi", tools=asked)
    assert (response.output_text, response.tools) == ("Hello.", [])
    assert response.to_dict()["callsmith"]["notices"] == ["the tool web_search was left out: it runs at OpenAI only"]  # pyright: ignore


async def test_over_a_websocket_custom_tools_are_called_alike() -> None:
    _, model = scripted(calling(Call("apply_patch", {"input": PATCH})))
    async with served(app_of(model)) as url, AsyncOpenAI(base_url=f"{url}/v1", api_key="none").responses.connect() as connection:
        await connection.response.create(model="m", input="hi", tools=[{"type": "custom", **CUSTOM}])
        deltas, types = list[str](), list[str]()
        async for event in connection:
            types.append(event.type)
            if event.type == "response.custom_tool_call_input.delta":
                deltas.append(event.delta)
            if event.type == "response.completed":
                break
    assert "".join(deltas) == PATCH
    assert types[-3:] == ["response.custom_tool_call_input.done", "response.output_item.done", "response.completed"]


@pytest.mark.weights
async def test_a_real_model_calls_tools_that_are_no_functions(shallow: LocalModel) -> None:
    async with served(app_of(shallow)) as url:
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        tools: Any = [{"type": "custom", **CUSTOM}, {"type": "shell"}, {"type": "apply_patch"}]
        body: Any = {"model": "m", "input": "List the files.", "temperature": 0.8, "max_output_tokens": 300}
        body |= {"parallel_tool_calls": False, "extra_body": {"seed": 7}}
        for chosen, kind in (
            ({"type": "custom", "name": "apply_patch"}, "custom_tool_call"),
            ({"type": "shell"}, "shell_call"),
            ({"type": "apply_patch"}, "apply_patch_call"),
        ):
            offered = [tool for tool in tools if tool["type"] == chosen["type"]]
            response = await client.responses.create(**body, tools=offered, tool_choice=chosen)
            if response.status == "completed":
                assert [item.type for item in response.output] == [kind]
            else:
                assert {item.type for item in response.output} <= {"message", "custom_tool_call"}


# Anthropic


EDIT: Any = {"command": "str_replace", "path": "a.py", "old_str": "a", "new_str": CODE}
ANTHROPIC: list[tuple[Any, Call]] = [
    ({"type": "bash_20250124", "name": "bash"}, Call("bash", {"command": "ls"})),
    ({"type": "text_editor_20250124", "name": "str_replace_editor"}, Call("str_replace_editor", EDIT)),
    (
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 99},
        Call("str_replace_based_edit_tool", EDIT),
    ),
    (
        {"type": "computer_20251124", "name": "computer", "display_width_px": 1024, "display_height_px": 768},
        Call("computer", {"action": "left_click", "coordinate": [10, 20]}),
    ),
]


@pytest.mark.parametrize(("tool", "call"), ANTHROPIC)
async def test_anthropics_client_tools_are_offered_and_called(tool: Any, call: Call) -> None:
    engine, model = scripted(calling(call, text="I do it."), calling(call, text="I do it."), "Done.")
    client = anthropic_client_of(app_of(model))
    body: Any = {"model": "m", "max_tokens": 500, "tools": [tool], "messages": [{"role": "user", "content": "hi"}]}
    whole = await client.beta.messages.create(**body)
    async with client.beta.messages.stream(**body) as stream:
        final = await stream.get_final_message()
    for message in (whole, final):
        used = message.content[-1]
        assert used.type == "tool_use"
        assert (used.name, used.input, message.stop_reason) == (call.name, call.arguments, "tool_use")
    for said in ("1024 x 768 pixels", "99 characters"):
        assert (said in engine.asked[0].prompt.text) == (said[:2] in str(tool))
    result: Any = {"type": "tool_result", "tool_use_id": whole.content[-1].id, "content": "all went well"}  # pyright: ignore
    body["messages"] += [{"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
    last = await client.beta.messages.create(**body)
    assert last.content[0].type == "text"
    assert "all went well" in engine.asked[-1].prompt.text


async def test_a_toolsets_tools_keep_their_names_and_what_the_browser_shows_is_read() -> None:
    call = Call("browser__left_click", {"target": {"type": "ref", "ref": "ref_7"}})
    engine, model = scripted(calling(call), calling(call), "Done.")
    client = anthropic_client_of(app_of(model))
    tools: Any = [{"type": "browser_toolset_20260801"}, {"type": "computer_toolset_20260801"}]
    body: Any = {"model": "m", "max_tokens": 500, "tools": tools, "messages": [{"role": "user", "content": "hi"}]}
    whole = await client.messages.create(**body)
    async with client.messages.stream(**body) as stream:
        final = await stream.get_final_message()
    for message in (whole, final):
        (used,) = message.content
        assert used.type == "tool_use"
        assert (used.name, used.toolset_name, used.input) == ("left_click", "browser", call.arguments)
    state: Any = {"type": "browser_state", "tabs": [{"tab_id": "t1", "title": "Tea", "url": "https://tea", "active": True}]}
    result: Any = {"type": "tool_result", "tool_use_id": whole.content[0].id, "toolset_name": "browser", "content": [state]}
    body["messages"] += [{"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
    await client.messages.create(**body)
    assert '"name": "browser__left_click"' in engine.asked[-1].prompt.text
    assert "- t1: Tea (https://tea), active" in engine.asked[-1].prompt.text


async def test_the_tool_runner_keeps_notes_with_the_sdks_own_memory_tool(tmp_path: Path) -> None:
    create = Call("memory", {"command": "create", "path": "/memories/tea.txt", "file_text": "Green, three minutes."})
    view = Call("memory", {"command": "view", "path": "/memories/tea.txt"})
    engine, model = scripted(calling(create), calling(view), "You like it green.")
    client = anthropic_client_of(app_of(model))
    memory = BetaAsyncLocalFilesystemMemoryTool(base_path=str(tmp_path))
    runner = client.beta.messages.tool_runner(
        model="m", max_tokens=500, tools=[memory], messages=[{"role": "user", "content": "How do I like my tea?"}]
    )
    last = await runner.until_done()
    assert last.content[0].type == "text"
    assert last.content[0].text == "You like it green."
    assert "Green, three minutes." in engine.asked[-1].prompt.text
    assert [file.read_text() for file in tmp_path.rglob("tea.txt")] == ["Green, three minutes."]


async def test_what_only_anthropic_runs_is_refused_by_name() -> None:
    _, model = scripted("Hello.")
    client = anthropic_client_of(app_of(model))
    hi: Any = [{"role": "user", "content": "hi"}]
    served: Any = [{"type": "web_search_20250305", "name": "web_search"}]
    with pytest.raises(anthropic.BadRequestError, match=r"tools\.0\.type: 'web_search_20250305' runs at Anthropic only"):
        await client.messages.create(model="m", max_tokens=9, messages=hi, tools=served)
    newer: Any = [{"type": "bash_20990101", "name": "bash"}]
    with pytest.raises(anthropic.BadRequestError, match=r"'bash_20990101' is not known here: .* bash_20250124"):
        await client.messages.create(model="m", max_tokens=9, messages=hi, tools=newer)
