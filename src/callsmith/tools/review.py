"""What an operator should know of descriptions of tools: text hidden from people, and names of other servers' tools.

A description is read by the model, and nobody else. One that names a tool of another server may tell the model how to use that
(tool shadowing); zero-width characters, directional marks and escape sequences hide text from whoever looks at it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import cast

from callsmith.core.types.escaped_text import is_hidden, show_hidden
from callsmith.core.values import Json, Tool

_WORD = re.compile(r"[A-Za-z0-9_.:/-]*[A-Za-z0-9_]")


def review_tools(tools: Sequence[Tool]) -> list[tuple[Tool, str]]:
    """What is remarkable of the tools' definitions, each with its tool."""
    sources_by_name: dict[str, set[str]] = {}
    for tool in tools:
        for name in filter(_is_telling, {tool.name, tool.original or tool.name}):
            sources_by_name.setdefault(name, set()).add(tool.source)
    remarks: list[tuple[Tool, str]] = []
    for tool in tools:
        text = _text(tool)
        if hidden := sorted({char for char in text if is_hidden(char)}):
            characters = " ".join(map(show_hidden, hidden[:5]))
            remarks.append((tool, f"{tool.name} has characters in its definition that nobody sees: {characters}"))
        own = {tool.name, tool.original}
        for name in sorted(sources_by_name.keys() & set(_WORD.findall(text)) - own):
            if others := sources_by_name[name] - {tool.source}:
                remarks.append((tool, f"{tool.name} names {name} of {', '.join(sorted(others))} in its definition"))
    return remarks


def _is_telling(name: str) -> bool:
    """Whether a word can only be the name of a tool: `read` is in many descriptions, `read_file` in few."""
    return not name.isalpha() or not (name.islower() or name.istitle())


def _text(tool: Tool) -> str:
    """All that a model reads of a tool."""
    texts, waiting = [tool.description], list[Json]([tool.parameters, tool.output])
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            texts += cast("Mapping[str, Json]", value)
            waiting += cast("Mapping[str, Json]", value).values()
        elif isinstance(value, list | tuple):
            waiting += cast("list[Json]", value)
        elif isinstance(value, str):
            texts.append(value)
    return "\n".join(texts)
