"""What a request to another server asks of its tools."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callsmith.core.errors import UsageError
from callsmith.core.values import Choice, Tool


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """What a request asks of the answer: which tools there are, whether they must be called, whether several at once."""

    tools: tuple[Tool, ...] = ()
    choice: Choice = Choice("none")
    parallel: bool = True

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that may be called."""
        return self.choice.among(self.tools)

    @property
    def is_constrained(self) -> bool:
        """Whether a grammar constrains the calls: they must be made, or one of the tools is strict."""
        return bool(self.offered) and (self.choice.mode == "required" or any(tool.strict for tool in self.offered))


def read_tool_request(request: Any, *, all_strict: bool = False) -> ToolRequest:
    """What a chat or Responses request asks of its tools. `all_strict`: the operator wants every tool strict."""
    return read_tool_fields(request.tools or (), request.tool_choice, request.parallel_tool_calls, all_strict=all_strict)


def read_tool_fields(tools: Any, choice: Any, parallel: bool | None, *, all_strict: bool = False) -> ToolRequest:
    """The same of the fields of a request, in the classes of the server."""
    known = tuple(_tools(tools, all_strict))
    if not known:
        return ToolRequest()
    is_mode = isinstance(choice, str) or choice is None
    return make_tool_request(known, choice if is_mode else None, None if is_mode else _read_name(choice), parallel)


def tool_from(name: str, description: str | None, parameters: Mapping[str, Any] | None, strict: bool | None) -> Tool:
    """A tool as an API request declares it."""
    return Tool(
        name, description or "", dict(parameters) if parameters else {"type": "object", "properties": {}}, strict=bool(strict)
    )


def make_tool_request(tools: Sequence[Tool], mode: str | None, name: str | None, parallel: bool | None) -> ToolRequest:
    """What a request asks: a `name` requires that one tool, else `mode` is "none", "auto" or "required"."""
    if name is not None:
        choice = Choice.only(name)
    elif mode == "required" or mode == "none" or mode == "auto":
        choice = Choice(mode)
    elif mode is None:
        choice = Choice("auto" if tools else "none")
    else:
        raise UsageError(
            f"tool_choice must be none, auto, required or a function's name, and it is {mode!r}", field="tool_choice"
        )
    tool_request = ToolRequest(tuple(tools), choice, parallel is not False)
    _ = tool_request.offered  # an unknown name is an error here
    return tool_request


def _tools(tools: Any, all_strict: bool) -> Iterator[Tool]:
    """The function tools; a chat request has them under `function`, a Responses request has them bare."""
    for tool in tools:
        function = getattr(tool, "function", None) or tool
        name = getattr(function, "name", None)
        if isinstance(name, str) and getattr(tool, "type", "function") == "function":
            strict = all_strict or getattr(function, "strict", None)
            yield tool_from(name, getattr(function, "description", None), getattr(function, "parameters", None), strict)


def _read_name(choice: Any) -> str:
    function = getattr(choice, "function", None) or choice
    name = getattr(function, "name", None)
    if not isinstance(name, str):
        raise ValueError(f"tool_choice: callsmith knows none, auto, required and the name of a function, not {choice!r}")
    return name
