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
from callsmith.formats.algebra import Thinks, nodes_of, texts

MARK = "\ufdd1\ufdd2"  # noncharacters, never real text
_MARKS = re.compile(r"\ufdd1\ufdd2|\\ufdd1\\ufdd2")  # as it is, or as JSON that allows only ASCII spells it


class Escaper:
    """Breaks the special tokens of a tokenizer wherever they stand in words that are not the template's."""

    def __init__(self, specials: frozenset[str] = frozenset()) -> None:
        self.specials = specials
        self._latest: tuple[Sequence[Tool], tuple[Tool, ...]] = ((), ())

    def message(self, message: Message, thinks: Thinks | None = None) -> Message:
        """In the model's own messages the marks of its reasoning stay: templates look for them."""
        if not self.specials or message.role == "system":
            return message
        own = self
        if message.role == "assistant" and thinks:
            own = Escaper(self.specials - set(_literals(thinks)))
        return replace(
            message,
            content=own.text(message.content),
            reasoning=own.text(message.reasoning),
            calls=tuple(self.call(call) for call in message.calls),
        )

    def call(self, call: Call) -> Call:
        return Call(call.name, self.value(call.arguments), call.id)

    def tools(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """The tools. The same ones as the last time, which most requests bring, are not gone through again."""
        known, broken = self._latest
        if known is not tools or not isinstance(tools, tuple):  # a list may have changed
            broken = tuple(map(self.tool, tools)) if self.specials else tuple(tools)
            self._latest = tools, broken
        return broken

    def tool(self, tool: Tool) -> Tool:
        return replace(tool, description=self.text(tool.description), parameters=self.value(tool.parameters))

    def value(self, value: Any) -> Any:
        """A JSON value with every text in it broken, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict | Mapping):  # most are dictionaries, which is told sooner
            return {self.text(key): self.value(inner) for key, inner in cast("Mapping[str, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in cast("list[Any]", value)]
        return value

    def text(self, text: str) -> str:
        """The text, with a mark behind the first character of every special token in it, overlapping ones too."""
        starts, lengths = _starts(self.specials)
        if not starts or not starts.search(text):
            return text

        def broken(hit: re.Match[str]) -> str:
            at = hit.start()
            return hit[0] + MARK if any(text[at : at + length] in self.specials for length in lengths) else hit[0]

        return starts.sub(broken, text)


@lru_cache
def _starts(specials: frozenset[str]) -> tuple[re.Pattern[str] | None, tuple[int, ...]]:
    """Where special tokens may begin, and how long they are. One character cannot be broken."""
    long = [special for special in specials if len(special) > 1]
    first = "".join(sorted({special[0] for special in long}))
    return re.compile(f"[{re.escape(first)}]") if first else None, tuple(sorted({len(special) for special in long}))


def unmarked(text: str) -> tuple[str, tuple[int, ...]]:
    """The text without the marks, and where they stood."""
    parts = _MARKS.split(text)
    cuts: list[int] = []
    for part in parts[:-1]:
        cuts.append((cuts[-1] if cuts else 0) + len(part))
    return "".join(parts), tuple(cuts)


def _literals(thinks: Thinks) -> Iterable[str]:
    nodes = (*nodes_of(thinks.open), *nodes_of(thinks.close))
    return (text.strip() for node in nodes for text in texts(node))
