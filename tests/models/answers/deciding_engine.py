"""An engine that is asked whether it would call, and what it would write: both from a script."""

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from callsmith.core.events import CallReady, ModelEvent, Started, Stopped, Text
from callsmith.core.values import Call, Message, Request, Result, Sampling, TokenLogprob, Tool, Usage
from callsmith.engines.port import EngineInfo, Finished, Piece, SampledToken
from callsmith.engines.scripted import RecordedRequest
from callsmith.formats import format_named
from callsmith.formats.prompt.prompt import Prompt
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay
from callsmith.models.local import LocalModel, Traits
from callsmith.models.tool_prompts import tool_prompt_named

TEXT = {"type": "string"}
DECIDING, WRITING = Usage(100, 1), Usage(1000, 7)


def tool(name: str, *parameters: str, **more: Any) -> Tool:
    schema = {"type": "object", "properties": dict.fromkeys(parameters, TEXT), "required": list(parameters)}
    return Tool(name, "", schema, **more)


WEATHER, FIND = tool("get_weather", "city"), tool("find_contact", "name")
SEND = tool("send_message", "to", "text", side_effects=True)
PARIS = Call("get_weather", {"city": "Paris"}, "c1")


class Undecided:
    """For a request for one token it tells the next of the prepared chances of tokens, for any other the next text."""

    def __init__(self, chances: Sequence[Mapping[str, float]], texts: Sequence[str], *, logprobs: bool = True) -> None:
        self.chances, self.texts = list(chances), list(texts)
        self.info = EngineInfo("fake", logprobs=logprobs)
        self.decided: list[RecordedRequest] = []
        self.written: list[RecordedRequest] = []

    async def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | Relay | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        request = RecordedRequest(prompt, sampling, grammar)
        if sampling.logprobs and sampling.max_tokens == 1:
            self.decided.append(request)
            top = tuple(TokenLogprob(text.encode(), math.log(chance)) for text, chance in self.chances.pop(0).items())
            token = TokenLogprob(top[0].data, top[0].logprob, top)
            yield Piece(token.text, tokens=(SampledToken(token, 0, len(token.text)),))
            yield Finished("length", DECIDING)
            return
        self.written.append(request)
        text = self.texts.pop(0)
        for at in range(0, len(text), 4):
            yield Piece(text[at : at + 4], usage=replace(WRITING, completion=1))
        yield Finished("stop", WRITING)

    async def count(self, text: str) -> int:
        return len(text)

    async def close(self) -> None:
        pass


def model(
    chances: Sequence[Mapping[str, float]],
    *texts: str,
    name: str = "json-array",
    threshold: float | None = 0.0,
    logprobs: bool = True,
    **traits: Any,
) -> tuple[LocalModel, Undecided]:
    engine, tool_prompt = Undecided(chances, texts, logprobs=logprobs), tool_prompt_named(name)
    tool_prompt = replace(tool_prompt, threshold=threshold, more=0.0)
    all_traits = Traits(tool_prompt=tool_prompt, **traits)
    return LocalModel(engine, format_named(tool_prompt.format), Template(CHATML), all_traits), engine


def rest_of(*calls: Call, name: str = "json-array") -> str:
    """The calls as they are written behind the opening."""
    tool_prompt = tool_prompt_named(name)
    return write(format_named(tool_prompt.format), calls).removeprefix(tool_prompt.opening)


def next_of(call: Call, name: str = "json-array") -> str:
    """A call as it is written behind others."""
    tool_prompt = tool_prompt_named(name)
    return rest_of(call, name=name)[: -len("]\n```" if tool_prompt.format == "fenced-array" else "\n```")]


def asking(text: str, *tools: Tool, **more: Any) -> Request:
    return Request((Message.user(text),), tools, **more)


def after(request: Request, *tool_calls: tuple[Call, str]) -> Request:
    """The request with calls that were made, all in one message, and their results."""
    results = [Message.tool(Result(call.id, call.name, text)) for call, text in tool_calls]
    return replace(request, messages=(*request.messages, Message.assistant(calls=[call for call, _ in tool_calls]), *results))


async def answer(local: LocalModel, request: Request) -> list[ModelEvent]:
    return [event async for event in local.stream(request)]


def calls_of(events: Sequence[ModelEvent]) -> list[Call]:
    return [event.call for event in events if isinstance(event, CallReady)]


def pairs(events: Sequence[ModelEvent]) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, dict(call.arguments)) for call in calls_of(events)]


def text_of(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def started(events: Sequence[ModelEvent]) -> Started:
    [event_started] = [event for event in events if isinstance(event, Started)]
    return event_started


def stopped(events: Sequence[ModelEvent]) -> Stopped:
    [last] = [event for event in events if isinstance(event, Stopped)]
    assert events[-1] is last
    return last
