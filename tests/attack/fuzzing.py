"""Requests that no client would send, for every route: valid bodies whose parts are exchanged, broken, repeated or made huge.

`Fuzzer(seed).request()` makes one. What servers answer is shown to it (`learn`), so that it finds the ids of what is stored.
"""

import asyncio
import copy
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

_TOOL = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
}
_FUNCTION = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": _TOOL}}
_CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}}
_HISTORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "mild"},
    {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
]
_CHAT = {
    "model": "m",
    "messages": _HISTORY,
    "tools": [_FUNCTION],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "stream": False,
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
    "max_tokens": 20,
    "stop": ["END"],
    "logit_bias": {"5": -1},
    "logprobs": True,
    "top_logprobs": 2,
    "n": 1,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": _TOOL, "strict": True}},
    "callsmith": {"approvals": []},
}
_RESPONSES = {
    "model": "m",
    "input": [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "mild"},
    ],
    "tools": [{"type": "function", "name": "weather", "parameters": _TOOL, "strict": True}],
    "instructions": "Be brief.",
    "store": True,
    "background": False,
    "stream": False,
    "previous_response_id": "ID",
    "conversation": "ID",
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "low"},
    "max_output_tokens": 20,
    "metadata": {"a": "b"},
}
_MESSAGES = {
    "model": "m",
    "max_tokens": 20,
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "Bonn"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "mild"}]},
    ],
    "tools": [{"name": "weather", "input_schema": _TOOL}],
    "tool_choice": {"type": "any"},
    "stop_sequences": ["END"],
    "stream": True,
}
_OLLAMA = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hi"}, {"role": "tool", "tool_name": "weather", "content": "mild"}],
    "tools": [_FUNCTION],
    "format": _TOOL,
    "stream": True,
    "options": {"temperature": 0.1, "num_predict": 10, "stop": ["END"]},
}
_BUS_CHAT = {
    "capability": "llm.chat",
    "version": "2.0",
    "request_id": "r1",
    "seconds": 20,
    "stream": True,
    "depth": 1,
    "via": ["n1"],
    "trust": "member",
    "capabilities": ["llm.*"],
    "body": {
        "params": {"model": "m"},
        "input": {
            "messages": [{"role": "user", "content": "Hi"}],
            "tools": [{"name": "weather", "description": "w", "parameters_schema": _TOOL}],
            "tool_choice": "auto",
            "max_tokens": 20,
        },
    },
}
_BUS_TOOL = {
    "capability": "llm.tools.call",
    "version": "1.0",
    "body": {"input": {"tool_call_id": "tc_1", "target_capability": "llm.chat@2.0", "target_body": _BUS_CHAT["body"]}},
}
_ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}

# Method, path and a valid body; ID stands for whatever the server has called something.
SEEDS: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/v1/chat/completions", _CHAT),
    ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "tool_events": True}),
    ("POST", "/v1/chat/completions", {"messages": _HISTORY[:2], "functions": [_FUNCTION["function"]], "function_call": "auto"}),
    (
        "POST",
        "/v1/chat/completions",
        {"messages": _HISTORY[:2], "guided_regex": "[a-z]+"},
    ),
    ("POST", "/v1/chat/completions", {"messages": _HISTORY[:2], "guided_grammar": 'start: "a" | "b" start', "max_tokens": 3}),
    ("POST", "/v1/responses", _RESPONSES),
    ("POST", "/v1/responses", {"input": "Hi", "store": True, "background": True}),
    ("POST", "/v1/responses", {"input": "Hi", "stream": True, "tools": [{"type": "mcp", "server_label": "functions"}]}),
    ("POST", "/v1/responses/compact", {"model": "m", "input": "Hi"}),
    ("POST", "/v1/responses/input_tokens", {"model": "m", "input": "Hi"}),
    ("GET", "/v1/responses/ID", None),
    ("DELETE", "/v1/responses/ID", None),
    ("POST", "/v1/responses/ID/cancel", {}),
    ("GET", "/v1/responses/ID/input_items?limit=2&order=asc&after=ID", None),
    ("POST", "/v1/conversations", {"items": [_ITEM], "metadata": {"a": "b"}}),
    ("POST", "/v1/conversations/ID/items", {"items": [_ITEM, _ITEM]}),
    ("GET", "/v1/conversations/ID/items?limit=1", None),
    ("POST", "/v1/conversations/ID", {"metadata": {"c": "d"}}),
    ("DELETE", "/v1/conversations/ID", None),
    ("DELETE", "/v1/conversations/ID/items/ID", None),
    ("POST", "/v1/messages", _MESSAGES),
    ("POST", "/v1/messages/count_tokens", {**_MESSAGES, "stream": None}),
    ("POST", "/api/chat", _OLLAMA),
    ("POST", "/api/generate", {"model": "m", "prompt": "Hi", "stream": False, "options": {"num_predict": 5}}),
    ("POST", "/api/show", {"model": "m"}),
    ("GET", "/api/tags", None),
    ("POST", "/v1/completions", {"model": "m", "prompt": ["Hi", "Ho"], "max_tokens": 5, "echo": True, "logprobs": 1, "n": 1}),
    ("POST", "/completion", {"prompt": "Hi", "n_predict": 5, "grammar": 'root ::= "a" | "b" root', "stop": ["END"]}),
    ("POST", "/tokenize", {"content": "Hi", "add_special": True}),
    ("POST", "/detokenize", {"tokens": [1, 2]}),
    ("GET", "/v1/approvals?status=all&limit=3", None),
    ("GET", "/v1/approvals/ID", None),
    ("POST", "/v1/approvals/ID", {"approve": True, "arguments": {"amount": 3}, "remember": True}),
    ("POST", "/v1/approvals/ID", {"approve": False, "reason": "No."}),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/m", None),
    ("GET", "/health", None),
    ("GET", "/metrics", None),
    ("POST", "/v1/embeddings", {"input": "Hi"}),
    ("POST", "/bus/v1/call", {"envelope": _BUS_CHAT}),
    ("POST", "/bus/v1/call", {"envelope": {**_BUS_CHAT, "stream": False}, "signature": "ed25519:A"}),
    ("POST", "/bus/v1/call", {"envelope": _BUS_TOOL}),
    ("GET", "/bus/v1/capabilities", None),
    ("GET", "/bus/v1/trace?limit=3", None),
)
_IDS = re.compile(rb'"((?:resp|conv|msg|item|confirm|call|fc|mcpr|req|run)_[\w-]+)"')
_NAMES = sorted(
    {name for _, _, body in SEEDS for name in re.findall(r'"(\w+)": ', json.dumps(body))}
    | {"id", "$ref", "$defs", "anyOf", "oneOf", "allOf", "not", "enum", "const", "pattern", "items", "additionalProperties"}
)
_TEXTS = (
    "",
    " ",
    "\x00",
    "\ud800",
    "é" * 50,
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>{}",
    "../../etc/passwd",
    "#/$defs/a",
    "(a+)+$",
    "{{7*7}}",
    "[[",
    "\u202e",
    "1e999",
    "null",
)
_SCALARS = (None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 1e308, -0.0, 0.1, [], {}, [None], {"": {}}, [[[]]])


@dataclass(frozen=True, slots=True)
class FuzzedRequest:
    """A request as it is sent. `gives_up`: the client leaves as soon as the answer begins."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]
    gives_up: bool = False


@dataclass(slots=True)
class Fuzzer:
    """Makes requests, the same ones for the same seed and the same ids."""

    seed: int
    ids: list[str] = field(default_factory=lambda: ["nothing"])
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def learn(self, answer: bytes) -> None:
        """Find the ids in an answer."""
        self.ids = [*self.ids, *(match.decode() for match in _IDS.findall(answer[:20_000])[:5])][-200:]

    def request(self) -> FuzzedRequest:
        draw = self.random
        method, path, body = draw.choice(SEEDS)
        path = re.sub("ID", lambda _: draw.choice(self.ids), path)
        if body is None:
            return FuzzedRequest(method, path, b"", {})
        body = copy.deepcopy(body)
        for _ in range(draw.choice((0, 1, 1, 1, 2, 3, 6))):
            body = self._changed(body)
        encoded = self._encoded(body)
        kind = (
            "application/json" if draw.random() < 0.98 else draw.choice(("text/plain", "application/x-www-form-urlencoded", ""))
        )
        headers = {"content-type": kind} if kind else {}
        return FuzzedRequest(method, path, encoded, headers, gives_up=draw.random() < 0.03)

    def _encoded(self, body: Any) -> bytes:
        draw = self.random
        try:
            text = json.dumps(body)
        except RecursionError:  # made too deep, several times
            return b'{"messages": ' + b"[" * 2000 + b"]" * 2000 + b"}"
        text = text.replace('"ID"', json.dumps(draw.choice(self.ids))).encode()
        if draw.random() > 0.03:
            return text
        at = draw.randrange(len(text) + 1)
        return draw.choice(
            (text[:at], text[:at] + bytes([draw.randrange(256)]) + text[at:], text + text, b"[" * 5000, b'"' + text)
        )

    def _changed(self, body: Any) -> Any:
        """The body with one of its parts changed."""
        places = list(_places(body))
        if not places:
            return self._value(body)
        holder, key = self.random.choice(places)
        value = holder[key]
        match self.random.randrange(9):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[self.random.choice(_NAMES)] = holder.pop(key)
            case 2 if isinstance(holder, dict):
                holder[self.random.choice(_NAMES)] = self._value(value)
            case 3 if isinstance(value, list):
                holder[key] = (value * self.random.choice((0, 2, 50, 500)))[:2000]
            case 4 if isinstance(value, str):
                holder[key] = (value[:50] * self.random.choice((2, 100, 5000)))[:100_000] + self.random.choice(_TEXTS)
            case 5:
                for _ in range(self.random.choice((1, 5, 60, 400))):
                    value = [value] if self.random.random() < 0.5 else {"properties": {"a": value}, "type": "object"}
                holder[key] = value
            case 6:
                other = copy.deepcopy(self.random.choice(SEEDS)[2])
                if positions := list(_places(other)):
                    inside, name = self.random.choice(positions)
                    holder[key] = inside[name]
            case _:
                holder[key] = self._value(value)
        return body

    def _value(self, value: Any) -> Any:
        return self.random.choice((self.random.choice(_TEXTS), copy.deepcopy(self.random.choice(_SCALARS)), value))


def _places(body: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Every place in a body where a value stands."""
    if depth > 20 or not isinstance(body, dict | list):
        return
    pairs = list(body.items()) if isinstance(body, dict) else list(enumerate(body[:20]))
    for key, value in pairs:
        yield body, key
        yield from _places(value, depth + 1)


async def send(host: str, port: int, fuzzer: Fuzzer, count: int, failures: list[str], statuses: "Counter[int]") -> int:
    """Send so many requests over one connection, opened again where it was closed. What must never be answered is a failure."""
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    done = 0
    while done < count and len(failures) < 10:
        request = fuzzer.request()
        connection = connection or await asyncio.open_connection(host, port, limit=2**26)
        reader, writer = connection
        head = {"host": f"{host}:{port}", "content-length": str(len(request.body)), **request.headers}
        lines = [f"{request.method} {request.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        try:
            writer.write("\r\n".join(lines).encode() + request.body)
            status, closes, answer = await asyncio.wait_for(_answer(reader, leaves=request.gives_up), 60)
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()
            connection = None
            continue
        except TimeoutError:
            failures.append(f"no answer within 60 s: {_shown(request)}")
            writer.close()
            connection = None
            continue
        done += 1
        statuses[status] += 1
        if status in (500, 502, 504) or b"Internal" in answer:
            failures.append(f"{status} {answer[:300]!r}: {_shown(request)}")
        fuzzer.learn(answer)
        if closes or request.gives_up:
            writer.close()
            connection = None
    if connection:
        connection[1].close()
    return done


def _shown(request: FuzzedRequest) -> str:
    return f"{request.method} {request.path} {request.headers} {request.body[:3000]!r}"


async def _answer(reader: asyncio.StreamReader, *, leaves: bool) -> tuple[int, bool, bytes]:
    """Status, whether the connection is closed now, and the body."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status, closes = int(head.split(None, 2)[1]), b"connection: close" in head
    if leaves:
        return status, True, b""
    if length := re.search(rb"content-length: (\d+)", head):
        return status, closes, await reader.readexactly(int(length[1]))
    if b"transfer-encoding: chunked" not in head:
        return status, True, await reader.read()
    body = bytearray()
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return status, closes, bytes(body)
