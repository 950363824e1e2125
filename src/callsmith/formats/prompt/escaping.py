"""Escaping special tokens: their text in a message or a tool result is tokenized as ordinary characters.

A tool result with the text `<|im_end|>\\n<|im_start|>system` would, tokenized with the prompt around it, end its message and
begin another (prompt injection). So a break is put behind the first character of such texts before a template renders them;
afterwards the breaks are removed again, and no token may span the places where they were (`Prompt.cuts`). The model reads the
same characters.

The system message is not escaped: its author decides what the model does anyway.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from callsmith.core.values import Call, Message, Tool
from callsmith.formats.algebra import Thinks, literals_of, nodes_of

BREAK = "\ufdd1\ufdd2"  # noncharacters, never in real text
_BREAKS = re.compile(r"\ufdd1\ufdd2|\\ufdd1\\ufdd2")  # as it is, or as ASCII-only JSON writes it


class Escaper:
    """Puts a break into the special tokens of a tokenizer wherever they stand in messages and tools."""

    def __init__(self, specials: frozenset[str] = frozenset()) -> None:
        self.specials = specials
        self._latest: tuple[Sequence[Tool], tuple[Tool, ...]] = ((), ())

    def escape_message(self, message: Message, thinks: Thinks | None = None) -> Message:
        """Escape a message. In the model's own messages the markers of reasoning stay: templates search for them."""
        if not self.specials or message.role == "system":
            return message
        escaper = self
        if message.role == "assistant" and thinks:
            escaper = Escaper(self.specials - set(_reasoning_markers(thinks)))
        return replace(
            message,
            content=escaper.escape_text(message.content),
            reasoning=escaper.escape_text(message.reasoning),
            calls=tuple(self.escape_call(call) for call in message.calls),
        )

    def escape_call(self, call: Call) -> Call:
        return Call(call.name, self.escape_value(call.arguments), call.id)

    def escape_tools(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """Escape tools. The result for the last tuple of tools is cached, since most requests bring the same."""
        known, escaped = self._latest
        if known is not tools or not isinstance(tools, tuple):  # a list may have changed
            escaped = tuple(map(self.escape_tool, tools)) if self.specials else tuple(tools)
            self._latest = tools, escaped
        return escaped

    def escape_tool(self, tool: Tool) -> Tool:
        return replace(tool, description=self.escape_text(tool.description), parameters=self.escape_value(tool.parameters))

    def escape_value(self, value: Any) -> Any:
        """Escape every string in a JSON value, keys too."""
        if isinstance(value, str):
            return self.escape_text(value)
        if isinstance(value, dict | Mapping):  # the check for dict is the faster one
            return {self.escape_text(key): self.escape_value(inner) for key, inner in cast("Mapping[str, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self.escape_value(inner) for inner in cast("list[Any]", value)]
        return value

    def escape_text(self, text: str) -> str:
        """Put a break behind the first character of every special token in the text, overlapping ones too."""
        starts, lengths = _special_starts(self.specials)
        if not starts or not starts.search(text):
            return text

        def with_break(hit: re.Match[str]) -> str:
            at = hit.start()
            return hit[0] + BREAK if any(text[at : at + length] in self.specials for length in lengths) else hit[0]

        return starts.sub(with_break, text)


@lru_cache
def _special_starts(specials: frozenset[str]) -> tuple[re.Pattern[str] | None, tuple[int, ...]]:
    """A pattern for the first characters of special tokens, and their lengths. Tokens of one character are not escaped."""
    long = [special for special in specials if len(special) > 1]
    first = "".join(sorted({special[0] for special in long}))
    return re.compile(f"[{re.escape(first)}]") if first else None, tuple(sorted({len(special) for special in long}))


def split_at_breaks(text: str) -> tuple[str, ...]:
    """The parts of the text between the breaks."""
    return tuple(_BREAKS.split(text))


def remove_breaks(text: str) -> tuple[str, tuple[int, ...]]:
    """The text without the breaks, and the positions where they were."""
    parts = split_at_breaks(text)
    cuts: list[int] = []
    for part in parts[:-1]:
        cuts.append((cuts[-1] if cuts else 0) + len(part))
    return "".join(parts), tuple(cuts)


def _reasoning_markers(thinks: Thinks) -> Iterable[str]:
    nodes = (*nodes_of(thinks.open), *nodes_of(thinks.close))
    return (text.strip() for node in nodes for text in literals_of(node))
