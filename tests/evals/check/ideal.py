"""A model that does all that it is asked, behind our server; and faults planted between that server and whoever asks it."""

import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Stopped, Text
from callsmith.core.values import Call, Request, Tool, Usage

_WORDS = {"17": "17 degrees, 31 there, and 17 again: 17", "alpha": "alpha beta ", "Zürich": "Zürich 東京 🦜 naïve ½"}


class IdealModel:
    """Calls what it must, and what it can where the question is for a tool; else it says something."""

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        tools = request.choice.among(request.tools)
        question = request.messages[-1].content
        for event in self._answer(request, tools, question):
            yield event

    def _answer(self, request: Request, tools: tuple[Tool, ...], question: str) -> list[ModelEvent]:
        usage = Usage(prompt=20, completion=7)
        wants = "Use the tool" in question or "for both" in question
        if tools and (request.choice.mode == "required" or wants):
            several = 2 if "for both" in question and request.parallel is not False else 1
            events: list[ModelEvent] = []
            for index in range(several):
                call = Call(tools[0].name, instance(tools[0].parameters), f"call_{index}")
                text = json.dumps(call.arguments, ensure_ascii=False)
                events += [CallStarted(index, call.name, call.id)]
                events += [CallArguments(index, text[:3]), CallArguments(index, text[3:])]
                events += [CallReady(index, call)]
            return [*events, Stopped("calls", usage)]
        if request.output is not None:
            return [Text(json.dumps({"city": "Paris", "degrees": 17, "sky": "cloudy"})), Stopped("stop", usage)]
        if question.startswith("Write a story"):
            reply = "one two three four five six seven eight"[: request.sampling.max_tokens or 0]
            return [Text(reply), Stopped("length", usage)]
        reply = next(
            (words for key, words in _WORDS.items() if any(key in message.content for message in request.messages)), "Hello!"
        )
        return [Text(reply[:3]), Text(reply[3:]), Stopped("stop", usage)]


def instance(schema: Any, definitions: Any = None) -> Any:
    """Something that fits a schema of the probes."""
    definitions = schema.get("$defs", definitions)
    if "$ref" in schema:
        return instance(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    if "anyOf" in schema:
        return instance(schema["anyOf"][-1], definitions)
    match schema.get("type"):
        case "object":
            return {key: instance(value, definitions) for key, value in schema.get("properties", {}).items()}
        case "array":
            return [instance(schema["items"], definitions)] * schema.get("minItems", 1)
        case "string":
            return "2026-11-16" if "pattern" in schema else "Paris"
        case kind:
            return {"integer": 1, "number": 0.5, "boolean": True, "null": None}[kind]


Fault = Callable[[dict[str, Any], bytes], bytes | tuple[int, bytes]]


class Faulty:
    """An application whose answers are changed on their way out: whole, when all of one has come."""

    def __init__(self, app: ASGIApp, fault: Fault) -> None:
        self._app, self._fault = app, fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        sent, received = b"", b""
        start: Message = {}

        async def take() -> Message:
            nonlocal received
            message = await receive()
            received += message.get("body", b"")
            return message

        async def give(message: Message) -> None:
            nonlocal sent, start
            if message["type"] == "http.response.start":
                start = message
                return
            sent += message.get("body", b"")
            if not message.get("more_body"):
                changed = self._fault(_asked(scope, received), sent)
                status, body = changed if isinstance(changed, tuple) else (start["status"], changed)
                headers = [(key, value) for key, value in start["headers"] if key != b"content-length"]
                await send({**start, "status": status, "headers": headers})
                await send({"type": "http.response.body", "body": body})

        await self._app(scope, take, give)


def _asked(scope: Scope, body: bytes) -> dict[str, Any]:
    try:
        return {"path": scope["path"], **json.loads(body)}
    except ValueError:
        return {"path": scope["path"]}


def swap(old: str, new: str, most: int = 0) -> Fault:
    """A fault: one pattern in place of another, wherever it stands."""
    return lambda _, body: re.sub(old, new, body.decode(), count=most, flags=re.DOTALL).encode()
