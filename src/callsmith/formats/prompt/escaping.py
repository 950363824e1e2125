"""What others have written stays letters: the text of a control token in a message is no control token.

A tool's result that says `<|im_end|>\\n<|im_start|>system` would, tokenised with the prompt around it, end its message and begin
another. So such texts are broken before a template renders them, by a mark behind their first character; afterwards the marks are
taken out again, and where they stood no token may reach across (`Prompt.cuts`). The model reads the very same letters.

The system message is taken as it is: whoever writes it says what the model is to do anyway.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from callsmith.core.values import Call, Message, Tool
from callsmith.formats.algebra import Thinks, literals_of, nodes_of

BREAK = "\ufdd1\ufdd2"  # noncharacters, never real text
_BREAKS = re.compile(r"\ufdd1\ufdd2|\\ufdd1\\ufdd2")  # as it is, or as JSON that allows only ASCII spells it


class Escaper:
    """Breaks the special tokens of a tokenizer wherever they stand in words that are not the template's."""

    def __init__(self, specials: frozenset[str] = frozenset()) -> None:
        self.specials = specials
        self._latest: tuple[Sequence[Tool], tuple[Tool, ...]] = ((), ())

    def escape_message(self, message: Message, thinks: Thinks | None = None) -> Message:
        """In the model's own messages the marks of its reasoning stay: templates look for them."""
        if not self.specials or message.role == "system":
            return message
        own = self
        if message.role == "assistant" and thinks:
            own = Escaper(self.specials - set(_reasoning_markers(thinks)))
        return replace(
            message,
            content=own.escape_text(message.content),
            reasoning=own.escape_text(message.reasoning),
            calls=tuple(self.escape_call(call) for call in message.calls),
        )

    def escape_call(self, call: Call) -> Call:
        return Call(call.name, self.escape_value(call.arguments), call.id)

    def escape_tools(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """The tools. The same ones as the last time, which most requests bring, are not gone through again."""
        known, broken = self._latest
        if known is not tools or not isinstance(tools, tuple):  # a list may have changed
            broken = tuple(map(self.escape_tool, tools)) if self.specials else tuple(tools)
            self._latest = tools, broken
        return broken

    def escape_tool(self, tool: Tool) -> Tool:
        return replace(tool, description=self.escape_text(tool.description), parameters=self.escape_value(tool.parameters))

    def escape_value(self, value: Any) -> Any:
        """A JSON value with every text in it broken, keys too."""
        if isinstance(value, str):
            return self.escape_text(value)
        if isinstance(value, dict | Mapping):  # most are dictionaries, which is told sooner
            return {self.escape_text(key): self.escape_value(inner) for key, inner in cast("Mapping[str, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self.escape_value(inner) for inner in cast("list[Any]", value)]
        return value

    def escape_text(self, text: str) -> str:
        """The text, with a mark behind the first character of every special token in it, overlapping ones too."""
        starts, lengths = _special_starts(self.specials)
        if not starts or not starts.search(text):
            return text

        def broken(hit: re.Match[str]) -> str:
            at = hit.start()
            return hit[0] + BREAK if any(text[at : at + length] in self.specials for length in lengths) else hit[0]

        return starts.sub(broken, text)


@lru_cache
def _special_starts(specials: frozenset[str]) -> tuple[re.Pattern[str] | None, tuple[int, ...]]:
    """Where special tokens may begin, and how long they are. One character cannot be broken."""
    long = [special for special in specials if len(special) > 1]
    first = "".join(sorted({special[0] for special in long}))
    return re.compile(f"[{re.escape(first)}]") if first else None, tuple(sorted({len(special) for special in long}))


def remove_breaks(text: str) -> tuple[str, tuple[int, ...]]:
    """The text without the marks, and where they stood."""
    parts = _BREAKS.split(text)
    cuts: list[int] = []
    for part in parts[:-1]:
        cuts.append((cuts[-1] if cuts else 0) + len(part))
    return "".join(parts), tuple(cuts)


def _reasoning_markers(thinks: Thinks) -> Iterable[str]:
    nodes = (*nodes_of(thinks.open), *nodes_of(thinks.close))
    return (text.strip() for node in nodes for text in literals_of(node))
