"""`Case`: a question with tools, and what is right to call. Files of cases are JSON lines, one case a line.

    {"id": "w1", "category": "weather", "messages": [{"role": "user", "content": "Weather in Oslo?"}],
     "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {…}}}],
     "expect": "calls", "calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}

`answers` in place of `calls` lists the values that are acceptable, in the benchmark's way: `[{"get_weather": {"city": ["Oslo"],
"unit": ["celsius", ""]}}]`; an empty text among them means that the argument may be left out.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol, TypeAlias, TypeVar, cast, get_args

from callsmith.core.errors import UsageError
from callsmith.core.types.tables import Table
from callsmith.core.values import Call, Json, Message, Tool
from callsmith.wire.openai.chat import read_request

Expect: TypeAlias = Literal["calls", "no_call", "any_call"]
Answers: TypeAlias = Sequence[Mapping[str, Mapping[str, Sequence[Json]]]]  # one of each call: its name, then values by argument
_EXPECTS: tuple[Expect, ...] = get_args(Expect)
_CALL = frozenset({"name", "arguments"})
_FIELDS = frozenset({"id", "category", "messages", "tools", "expect", "calls", "answers"})
_MOST_BYTES = 256 * 1024 * 1024  # of a file


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says in one turn of a conversation, and the tools that become known with it."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class World:
    """What the tools of a conversation work on: classes of the benchmark, and how they begin. `gold`: the right calls by turn."""

    id: str
    classes: tuple[str, ...]
    beginning: Mapping[str, Json]
    gold: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One question, or a conversation of several turns. `expect` says whether calls are right at all ("any_call": whichever).

    `calls` are the right calls, `answers` what is acceptable in them. `functions` are the tools as the benchmark's checker knows
    them, if it does. Only a conversation has a `world`.
    """

    id: str
    category: str
    turns: tuple[Turn, ...]
    expect: Expect = "calls"
    calls: tuple[Call, ...] = ()
    answers: Answers = ()
    functions: Sequence[Mapping[str, Json]] = field(default=(), repr=False)
    world: World | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The question."""
        return self.turns[0].messages

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that are known from the beginning."""
        return self.turns[0].tools


def read_cases(path: Path) -> list[Case]:
    """The cases of a file; a UsageError names the line that is wrong."""
    return read_lines(path, read_case, "case")


class Identified(Protocol):
    """What has a name that nothing else in its file has."""

    @property
    def id(self) -> str: ...


_Line = TypeVar("_Line", bound=Identified)


def read_lines(path: Path, read: Callable[[Json], _Line], what: str) -> list[_Line]:
    """What the JSON lines of a file hold, in their order; a UsageError names the line that is wrong."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)  # /dev/zero and a pipe may never end
        if len(content) > _MOST_BYTES:
            raise UsageError(f"cannot read {what}s from {path}: it has more than {_MOST_BYTES:,} bytes", field=f"{what}s")
        lines = content.decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {what}s from {path}: {error}", field=f"{what}s") from error
    found: dict[str, _Line] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            item = read(json.loads(line, parse_constant=_no_constant))
        except (ValueError, RecursionError, UsageError) as error:
            raise UsageError(f"{path}, line {number}: {error}", field=f"{what}s") from error
        if item.id in found:
            raise UsageError(f"{path}, line {number}: there is another {what} {item.id!r} before", field=f"{what}s")
        found[item.id] = item
    if not found:
        raise UsageError(f"there are no {what}s in {path}", field=f"{what}s")
    return list(found.values())


def read_case(document: Json) -> Case:
    """The case in a decoded line."""
    row = Table.of(document, "case").check_keys(_FIELDS)
    id, category = row.required_text("id"), row.text("category") or "own"
    f"{id}{category}".encode()  # a ValueError if half a character is in it: it could not be stored
    answers, calls = _read_answers(row.array("answers") or []), [call.check_keys(_CALL) for call in row.objects("calls")]
    expect: Expect = row.one_of("expect", _EXPECTS, "calls")
    if (expect == "calls") != bool(answers or calls):
        raise UsageError("`calls` or `answers` belong to a case that expects calls, and to no other")
    request = read_request({"messages": row.get("messages"), "tools": row.get("tools")}).request
    known = {tool.name for tool in request.tools}
    for name in (*(call.required_text("name") for call in calls), *(name for answer in answers for name in answer)):
        if not known & {name, name.replace(".", "_")}:
            raise UsageError(f"a call of {name!r} cannot be right, for there is no tool {name!r} in this case")
    return Case(
        id,
        category,
        (Turn(request.messages, request.tools),),
        expect,
        tuple(Call(call.required_text("name"), (call.object("arguments") or Table({})).data) for call in calls),
        answers,
    )


def _no_constant(name: str) -> NoReturn:
    raise UsageError(f"{name} is not JSON")


def _read_answers(answers: list[Any]) -> Answers:
    """The acceptable values; each argument must have a list of them, for a bare value is a mistake that is easily made."""
    for answer in answers:
        listed: list[Any] = [*cast("dict[str, Any]", answer).values()] if isinstance(answer, dict) else []
        if (
            len(listed) != 1
            or not isinstance(listed[0], dict)
            or not all(map(_is_listed, cast("dict[str, Any]", listed[0]).values()))
        ):
            raise UsageError('`answers` must be [{"tool": {"argument": [acceptable values]}}]')
    return cast("Answers", answers)


def _is_listed(values: Any) -> bool:
    return isinstance(values, list) and bool(cast("list[Any]", values))
