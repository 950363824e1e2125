"""The real Anthropic client against the real application, over models that are told what to write and over a real one."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic, beta_async_tool
from pydantic import BaseModel
from starlette.applications import Starlette

from callsmith.core.errors import LimitReached, ModelError, Unavailable
from callsmith.core.events import CallReady, CallStarted, ModelEvent, Started, Text
from callsmith.core.values import Call, Choice, Message, Request, Sampling, Tool
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.tools.functions import Functions
from callsmith.wire.anthropic.blocks import SIGNATURE
from callsmith.wire.anthropic.events import EventReader
from callsmith.wire.anthropic.messages import MessagesRequest, write_request
from callsmith.wire.sse import FrameReader
from tests.journeys.scripts import CALLS, HERMES, HI, SAID, WHOLE
from tests.serving import served

CHUNKS = (1, 3, WHOLE)
FORMATS = ("hermes", "qwen3-coder", "mistral", "pythonic", "harmony", "deepseek-v32")
TOOLS: Any = [
    {
        "name": "write_file",
        "description": "Write a file.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "integer"}},
            "required": ["path", "content"],
        },
    },
    {"name": "now", "input_schema": {"type": "object", "properties": {}}, "defer_loading": True},
    {"type": "bash_20250124", "name": "bash"},
]


def client_of(app: Starlette) -> AsyncAnthropic:
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    http = httpx2.AsyncClient(transport=transport, base_url="http://localhost")
    return AsyncAnthropic(base_url="http://localhost", api_key="none", http_client=http, max_retries=0)


def scripted_client(*replies: Any, format: Format = HERMES, chunk: int = 4) -> tuple[Scripted, AsyncAnthropic]:
    engine = Scripted(replies, chunk=chunk, repeat=True)
    return engine, client_of(create_app({"m": LocalModel(engine, format, Template(CHATML))}))


def written(*calls: tuple[str, Any], format: Format = HERMES, said: str = "") -> str:
    made_calls = [Call(name, arguments, fit_id(f"call_{at}", format.ids)) for at, (name, arguments) in enumerate(calls)]
    return write(format, made_calls, text=said)


def asking(**more: Any) -> Any:
    return {"model": "m", "max_tokens": 1000, "messages": HI, **more}


def blocks_of(message: Any) -> list[Any]:
    """The content of a message, without ids."""
    blocks: list[Any] = []
    for block in message.content:
        match block.type:
            case "text":
                blocks.append(block.text.strip())
            case "thinking":
                blocks.append((block.thinking.strip(), block.signature))
            case "tool_use":
                blocks.append((block.name, block.input))
    return blocks


async def both(client: AsyncAnthropic, **more: Any) -> list[Any]:
    """The answer whole, and put together by the streaming helper."""
    whole = await client.messages.create(**asking(**more))
    async with client.messages.stream(**asking(**more)) as stream:
        return [whole, await stream.get_final_message()]


# -- what a model says, in every form


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("name", FORMATS)
async def test_the_streaming_helper_puts_together_what_the_whole_answer_says(name: str, chunk: int) -> None:
    format = format_named(name)
    _, client = scripted_client(written(*CALLS, format=format, said=SAID), format=format, chunk=chunk)
    whole = await client.messages.create(**asking(tools=TOOLS))
    inputs: list[Any] = []
    async with client.messages.stream(**asking(tools=TOOLS)) as stream:
        async for event in stream:
            if event.type == "content_block_stop" and event.content_block.type == "tool_use":
                inputs.append((event.content_block.name, event.content_block.input))
        final = await stream.get_final_message()
    assert blocks_of(whole) == blocks_of(final) == [SAID, *CALLS]
    assert inputs == CALLS
    assert final.stop_reason == whole.stop_reason == "tool_use"
    assert len({block.id for block in final.content if block.type == "tool_use"} - {""}) == 2
    assert final.usage.output_tokens == whole.usage.output_tokens > 0
    assert final.usage.input_tokens == whole.usage.input_tokens > 0


async def test_text_and_thoughts_are_blocks_of_their_own_and_are_welcome_when_they_come_back() -> None:
    engine, client = scripted_client("<think>\nHow polite.\n</think>\n\nHello 東京 🐈!")
    for message in await both(client, max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024}):
        assert blocks_of(message) == [("How polite.", SIGNATURE), "Hello 東京 🐈!"]
        assert message.stop_reason == "end_turn"
        again = [*HI, {"role": "assistant", "content": message.content}, {"role": "user", "content": "and?"}]
        await client.messages.create(**asking(messages=again))
        assert "Hello 東京 🐈!" in engine.asked[-1].prompt.text
    for message in await both(client, thinking={"type": "adaptive", "display": "omitted"}):
        assert blocks_of(message) == ["Hello 東京 🐈!"]


async def test_an_answer_that_is_cut_off_says_so_and_shows_no_call_that_looks_whole() -> None:
    _, client = scripted_client(written(CALLS[0]), chunk=4)
    for message in await both(client, tools=TOOLS, max_tokens=15):
        assert message.stop_reason == "max_tokens"
        assert message.usage.output_tokens == 15
    whole = await client.messages.create(**asking(tools=TOOLS, max_tokens=15))
    assert all(block.type == "text" for block in whole.content)


async def test_the_stop_sequence_that_ended_an_answer_is_named() -> None:
    _, client = scripted_client("one two three")
    for message in await both(client, stop_sequences=["four", " three"]):
        assert blocks_of(message) == ["one two"]
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " three")
    for message in await both(client, stop_sequences=["four"]):
        assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)


async def test_a_conversation_with_calls_and_results_reaches_the_prompt_whole() -> None:
    engine, client = scripted_client(written(("now", {})), "It is noon.")
    first = await client.messages.create(**asking(tools=TOOLS, system=[{"type": "text", "text": "Be brief."}]))
    (use,) = (block for block in first.content if block.type == "tool_use")
    failed = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "no clock"}], "is_error": True}
    history = [
        *HI,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [failed, {"type": "text", "text": "Guess."}]},
        {"role": "system", "content": "Answer in English."},
    ]
    second = await client.messages.create(**asking(tools=TOOLS, system="Be brief.", messages=history))
    assert blocks_of(second) == ["It is noon."]
    prompt = engine.asked[-1].prompt.text
    for words in ("Be brief.", "Error: no clock", "Guess.", "Answer in English."):
        assert words in prompt
    assert prompt.index("no clock") < prompt.index("Guess.")


async def test_what_claude_code_sends_is_understood() -> None:
    """The shape of a request of Claude Code 2.1, in small."""
    engine, client = scripted_client("Done.")
    cached = {"cache_control": {"type": "ephemeral"}}
    answer = await client.post(
        "/v1/messages?beta=true",
        body={
            "model": "m",
            "max_tokens": 32000,
            "stream": False,
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.325; cch=12345;"},
                {"type": "text", "text": "You are an agent.", **cached},
            ],
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "<system-reminder>"}, {"type": "text", "text": "hi", **cached}],
                },
                {"role": "system", "content": "Deferred tools: now"},
            ],
            "tools": [{**tool, **cached} for tool in TOOLS],
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "medium"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "metadata": {"user_id": "u"},
        },
        options={"headers": {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219"}},
        cast_to=anthropic.types.Message,
    )
    assert blocks_of(answer) == ["Done."]
    assert "billing" not in engine.asked[-1].prompt.text


class City(BaseModel):
    name: str
    inhabitants: int


async def test_an_answer_in_a_schema_is_parsed_by_the_helper() -> None:
    _, client = scripted_client('{"name": "Bonn", "inhabitants": 330000}')
    parsed = await client.messages.parse(**asking(), output_format=City)
    assert parsed.parsed_output == City(name="Bonn", inhabitants=330000)
    async with client.messages.stream(**asking(), output_format=City) as stream:
        assert (await stream.get_final_message()).parsed_output == parsed.parsed_output


# -- the tool runner


@pytest.mark.parametrize("stream", [False, True])
async def test_the_tool_runner_falls_back_to_the_whole_history_and_runs_its_tools(stream: bool) -> None:
    seen: list[str] = []

    @beta_async_tool
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        seen.append(f"{a}+{b}")
        return str(a + b)

    engine, client = scripted_client(written(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), "The sums are 3 and 7.")
    requests: list[Any] = []

    async def note(request: httpx2.Request) -> None:
        requests.append(json.loads(request.content))

    client._client.event_hooks["request"].append(note)
    runner = client.beta.messages.tool_runner(model="m", max_tokens=100, messages=HI, tools=[add], stream=stream)
    final = await runner.until_done()
    assert seen == ["1+2", "3+4"]
    assert final.content[0].type == "text"
    assert final.content[0].text == "The sums are 3 and 7."
    assert "thread" in requests[0]  # refused …
    assert not any("thread" in body for body in requests[1:])  # … and not tried again
    assert len(requests) == 3
    assert len(engine.asked) == 2
    prompt = engine.asked[-1].prompt.text
    assert prompt.index("hi") < prompt.rindex("3") < prompt.rindex("7")


async def test_a_request_without_tools_has_the_servers_own_run_for_it_and_counted() -> None:
    async def weather(city: str) -> str:
        """The weather in a city."""
        return f"sun in {city}"

    engine = Scripted([written(("weather", {"city": "Bonn"})), "It is sunny in Bonn."], repeat=True)
    model = LocalModel(engine, HERMES, Template(CHATML))
    client = client_of(create_app({"m": model}, tools=Functions(weather)))
    for message in await both(client):
        assert blocks_of(message) == ["It is sunny in Bonn."]
        assert message.stop_reason == "end_turn"
        assert "sun in Bonn" in engine.asked[-1].prompt.text
    counted = await client.messages.count_tokens(model="m", messages=HI)
    assert counted.input_tokens == await engine.count(engine.asked[0].prompt.text)


async def test_our_own_codec_reads_from_our_own_server_what_the_model_said() -> None:
    tools = tuple(Tool(tool["name"], "A tool.", tool["input_schema"], strict=True) for tool in TOOLS[:2])
    request = Request(
        (Message.system("Be brief."), Message.user("hi")), tools, Choice("required"), sampling=Sampling(max_tokens=500)
    )
    engine = Scripted([f"<think>\nhm\n</think>\n\n{written(*CALLS, said=SAID)}"], repeat=True)
    model = LocalModel(engine, HERMES, Template(CHATML))
    direct = [event async for event in model.stream(request) if not isinstance(event, Started)]  # its counts come with the end
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=create_app({"m": model})), base_url="http://localhost"
    ) as http:
        response = await http.post("/v1/messages", json=write_request(MessagesRequest("m", request, stream=True)))
    reader, frames = EventReader(), FrameReader().feed(response.content)
    assert all(frame.event == json.loads(frame.data)["type"] for frame in frames)
    read = [event for frame in frames for event in reader.feed(json.loads(frame.data))] + reader.close()
    events = [event for event in direct if not isinstance(event, Started)]  # what the prompt cost is also at the end
    assert [without_id(event) for event in read] == [without_id(event) for event in events]
    assert engine.asked[0] == engine.asked[1]


def without_id(event: ModelEvent) -> ModelEvent:
    """Ids are made anew for every answer."""
    if isinstance(event, CallReady):
        return replace(event, call=replace(event.call, id=""))
    return replace(event, id="") if isinstance(event, CallStarted) else event


# -- counting, and the list of models


async def test_tokens_are_counted_as_the_prompt_of_the_same_request_has_them() -> None:
    _, client = scripted_client("Hello.")
    counted = await client.messages.count_tokens(model="m", messages=HI, tools=TOOLS, system="Be brief.")
    answered = await client.messages.create(**asking(tools=TOOLS, system="Be brief."))
    assert counted.input_tokens == answered.usage.input_tokens > 0


class Failing:
    """A model that says something and then fails, or fails at once."""

    def __init__(self, error: Exception, *words: str) -> None:
        self.error, self.words = error, words

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        for word in self.words:
            yield Text(word)
        raise self.error


async def test_a_model_that_cannot_count_says_so() -> None:
    client = client_of(create_app({"m": Failing(ModelError("broken"))}))
    with pytest.raises(anthropic.NotFoundError, match="cannot count"):
        await client.messages.count_tokens(model="m", messages=HI)


async def test_models_are_listed_in_the_callers_dialect() -> None:
    _, client = scripted_client("Hello.")
    (model,) = [model async for model in client.models.list()]
    assert (model.id, model.type, model.display_name) == ("m", "model", "m")
    assert model.created_at.year >= 2025
    assert (await client.models.retrieve("m")).id == "m"
    with pytest.raises(anthropic.NotFoundError):
        await client.models.retrieve("x")


# -- what goes wrong


async def test_what_is_wrong_is_said_in_the_dialects_own_body() -> None:
    _, client = scripted_client("Hello.")
    image = [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]}]
    with pytest.raises(anthropic.BadRequestError, match=r"messages\.0: this model reads text, and no images") as refused:
        await client.messages.create(**asking(messages=image))
    assert refused.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]
    with pytest.raises(anthropic.NotFoundError) as unknown:
        await client.messages.create(**{**asking(), "model": "x"})
    assert unknown.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    with pytest.raises(anthropic.NotFoundError, match="unknown path"):
        await client.get("/v1/messages/nowhere", cast_to=object)


@pytest.mark.parametrize(
    ("error", "raised", "kind"),
    [
        (Unavailable("away"), anthropic.InternalServerError, "overloaded_error"),
        (LimitReached("requests", "too many"), anthropic.RateLimitError, "rate_limit_error"),
        (ModelError("broken"), anthropic.InternalServerError, "api_error"),
        (ValueError("secret"), anthropic.InternalServerError, "api_error"),
    ],
)
async def test_a_failure_before_the_first_word_is_a_status(error: Exception, raised: type[Exception], kind: str) -> None:
    client = client_of(create_app({"m": Failing(error)}))
    for stream in (False, True):
        with pytest.raises(raised) as caught:
            await client.messages.create(**asking(stream=stream))
        assert caught.value.body["error"]["type"] == kind  # type: ignore[attr-defined]
        assert "secret" not in str(caught.value)


async def test_a_failure_after_the_first_word_is_an_event_that_the_helper_raises() -> None:
    client = client_of(create_app({"m": Failing(Unavailable("gone away"), "Hel")}))
    heard = ""
    with pytest.raises(anthropic.APIStatusError, match="gone away") as caught:
        async with client.messages.stream(**asking()) as stream:
            async for text in stream.text_stream:
                heard += text
    assert heard == "Hel"
    assert caught.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]


# -- a real model on a real socket


def timer(name: str) -> Any:
    properties = {"minutes": {"type": "integer", "minimum": 1, "maximum": 60}, "label": {"enum": ["tea", "eggs"]}}
    schema = {"type": "object", "properties": properties, "required": ["minutes", "label"], "additionalProperties": False}
    return {"name": name, "input_schema": schema}


TIMERS = [timer("set_timer"), timer("stop_timer")]


@pytest.mark.weights
@pytest.mark.model
async def test_a_real_model_keeps_to_every_tool_choice(small: LocalModel) -> None:
    async with served(create_app({"m": small})) as url:
        client = AsyncAnthropic(base_url=url, api_key="none", max_retries=0)
        for choice, names in [
            ({"type": "any", "disable_parallel_tool_use": True}, {"set_timer", "stop_timer"}),
            ({"type": "tool", "name": "stop_timer", "disable_parallel_tool_use": True}, {"stop_timer"}),
        ]:
            for message in await both(client, tools=TIMERS, tool_choice=choice):
                ((name, arguments),) = blocks_of(message)
                assert name in names
                assert 1 <= arguments["minutes"] <= 60
                assert arguments["label"] in ("tea", "eggs")
                assert message.stop_reason == "tool_use"
        for choice in ({"type": "none"}, {"type": "auto"}):
            (message, _) = await both(client, tools=TIMERS, tool_choice=choice, max_tokens=8)
            assert message.stop_reason in ("max_tokens", "end_turn", "tool_use")
            assert choice["type"] == "auto" or all(block.type == "text" for block in message.content)


@pytest.mark.weights
@pytest.mark.model
async def test_a_real_model_counts_answers_in_a_schema_and_finds_its_prompt_in_the_cache(small: LocalModel) -> None:
    async with served(create_app({"m": small})) as url:
        client = AsyncAnthropic(base_url=url, api_key="none", max_retries=0)
        counted = await client.messages.count_tokens(model="m", messages=HI)
        first = await client.messages.create(**asking(max_tokens=4))
        again = await client.messages.create(**asking(max_tokens=4))
        for message in (first, again):
            assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) == counted.input_tokens
        assert (again.usage.cache_read_input_tokens or 0) > 0
        parsed = await client.messages.parse(**asking(max_tokens=100), output_format=City)
        assert isinstance(parsed.parsed_output, City)
        stopped = await client.messages.create(**asking(max_tokens=60, stop_sequences=["e"], extra_body={"temperature": 0}))
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "e")
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):  # the words at which clients shorten it
            await client.messages.create(**asking(system="word " * 3000))
