"""What real clients hold a stream to, as small rules over the frames of a stream: `complaints("chat", frames)`.

Each rule stands for something a client is known to fail at, or to lose silently. A rule gets the whole stream and yields what is
wrong with it; where it cannot tell because something else is broken, another rule complains. Streams that fail in the middle end
with the dialect's error, and are otherwise held to the same rules.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from jiter import from_json

DONE = "[DONE]"
USES = ("tool_use", "mcp_tool_use")  # in Anthropic's dialect: what a client runs, and what ran on a server


@dataclass(slots=True)
class Sent:
    """One frame: the name of its event, where it has one, and its data, parsed."""

    event: str
    data: Any


Stream: TypeAlias = Sequence[Sent]
Rule: TypeAlias = Callable[[Stream], Iterator[str]]

RULES: dict[str, dict[str, Rule]] = {"chat": {}, "responses": {}, "anthropic": {}, "ollama": {}}


def rule(dialect: str) -> Callable[[Rule], Rule]:
    """Makes a function a rule of this dialect."""

    def kept(check: Rule) -> Rule:
        RULES[dialect][check.__name__] = check
        return check

    return kept


def complaints(dialect: str, stream: Stream) -> dict[str, list[str]]:
    """What is wrong, by rule."""
    by_rule = {name: list(check(stream)) for name, check in RULES[dialect].items()}
    return {name: wrong for name, wrong in by_rule.items() if wrong}


def parse_events(raw: bytes) -> list[Sent]:
    """Server-sent events, read strictly: one data line each, no half frames."""
    assert raw.endswith(b"\n\n"), "the last frame is not complete"
    sent: list[Sent] = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        fields = [line.partition(": ") for line in lines]
        assert [name for name, _, _ in fields] in ([], ["data"], ["event", "data"]), block
        if fields:
            data = fields[-1][2]
            sent.append(Sent(fields[0][2] if len(fields) == 2 else "", data if data == DONE else json.loads(data)))
    return sent


def parse_lines(raw: bytes) -> list[Sent]:
    """Lines of JSON: clients parse every line, so that none may be empty."""
    assert raw.endswith(b"\n"), "the last line is not complete"
    return [Sent("", json.loads(line)) for line in raw.decode().removesuffix("\n").split("\n")]


def is_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError):
        return False


def not_objects(texts: Mapping[Any, str]) -> Iterator[str]:
    """The arguments that are no object. The last call may be cut off: then they must be the beginning of one."""
    for at, (index, text) in enumerate(texts.items()):
        try:
            whole = isinstance(from_json(text.encode() or b"{}", partial_mode=at == len(texts) - 1), dict)
        except ValueError:
            whole = False
        if not whole:
            yield f"call {index}: {text!r}"


def failed(stream: Stream) -> bool:
    """Whether the last frame is the dialect's error."""
    last = stream[-1].data if stream else None
    return isinstance(last, Mapping) and (last.get("error") is not None or last.get("type") == "response.failed")


def typed_data(stream: Stream) -> Iterator[tuple[str, dict[str, Any]]]:
    for sent in stream:
        if isinstance(sent.data, dict):
            yield sent.data.get("type", ""), sent.data


def called(dialect: str, stream: Stream) -> list[tuple[str, Any]]:
    """The calls of a stream, as a client puts them together."""
    names: list[str] = []
    texts: list[str] = []
    for kind, data in typed_data(stream):
        match dialect:
            case "chat":
                for delta in (
                    call_delta for choice in data.get("choices", ()) for call_delta in choice["delta"].get("tool_calls", ())
                ):
                    names += [delta["function"]["name"]] if "id" in delta else []
                    texts += [""] if "id" in delta else []
                    texts[delta["index"]] += delta["function"]["arguments"]
            case "responses" if kind == "response.output_item.done" and data["item"]["type"] == "function_call":
                names.append(data["item"]["name"])
                texts.append(data["item"]["arguments"])
            case "anthropic" if kind == "content_block_start" and data["content_block"]["type"] in USES:
                names.append(data["content_block"]["name"])
                texts.append("")
            case "anthropic" if kind == "content_block_delta" and "partial_json" in data["delta"]:
                texts[-1] += data["delta"]["partial_json"]
            case "ollama":
                calls = (data.get("message") or {}).get("tool_calls", ())
                names += [call["function"]["name"] for call in calls]
                texts += [json.dumps(call["function"]["arguments"]) for call in calls]
            case _:
                pass
    return [(name, json.loads(text or "{}")) for name, text in zip(names, texts, strict=True)]
