"""The four APIs: how a text is said in each, and what its answer says."""

import json
from collections.abc import Callable, Iterator
from typing import Any

APIS = ("chat", "responses", "messages", "ollama")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages", "ollama": "/api/chat"}


class Unanswered(Exception):
    """No answer, or one that says: later."""


class BrokenAnswer(Exception):
    """An answer that is none by the rules of its API."""


def body_of(api: str, model: str, messages: list[dict[str, str]], *, stream: bool = False) -> dict[str, Any]:
    """The body that says these messages."""
    said = {"input": messages} if api == "responses" else {"messages": messages}
    limit = {"max_tokens": 4000} if api == "messages" else {}
    return {"model": model, "stream": stream, **said, **limit}


def read_answer(api: str, body: Any) -> str:
    """The text of an answer that came as a whole."""
    match api:
        case "chat":
            return body["choices"][0]["message"]["content"] or ""
        case "responses":
            if body["status"] != "completed":
                raise Unanswered(f"{body['status']}: {(body.get('error') or {}).get('code')}")
            return response_text(body)
        case "messages":
            return "".join(block.get("text", "") for block in body["content"])
        case _:
            return body["message"]["content"]


def response_text(response: Any) -> str:
    """The text of a response's messages."""
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part.get("text", "") for message in messages for part in message["content"])


def read_stream(api: str, raw: str) -> str:
    """The text of an answer that came as a stream, whole."""
    text, is_whole = "", False
    read = _READERS[api]
    for frame in _frames(api, raw):
        if error := frame.get("error") or (frame.get("response") or {}).get("error"):
            raise Unanswered(f"in the stream: {error.get('code') or error.get('type') if isinstance(error, dict) else 'error'}")
        part, is_end = read(frame)
        text += part
        is_whole = is_whole or is_end
    if not is_whole:
        raise BrokenAnswer(f"a stream without its end: {raw[-200:]!r}")
    return text


def _frames(api: str, raw: str) -> Iterator[Any]:
    for line in raw.splitlines():
        data = line if api == "ollama" else line.removeprefix("data: ") if line.startswith("data: ") else ""
        if data and data != "[DONE]":
            yield json.loads(data)


def _chat(frame: Any) -> tuple[str, bool]:
    choice = (frame.get("choices") or [{}])[0]
    return choice.get("delta", {}).get("content") or "", bool(choice.get("finish_reason"))


def _responses(frame: Any) -> tuple[str, bool]:
    text = frame["delta"] if frame["type"] == "response.output_text.delta" else ""
    return text, frame["type"] in ("response.completed", "response.incomplete")


def _messages(frame: Any) -> tuple[str, bool]:
    return (frame.get("delta") or {}).get("text", ""), frame["type"] == "message_stop"


def _ollama(frame: Any) -> tuple[str, bool]:
    return frame["message"]["content"], frame["done"]


_READERS: dict[str, Callable[[Any], tuple[str, bool]]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "ollama": _ollama,
}
