"""Bad habits of small models, each found in a turn by a function of a few lines: a hint for the model, and when to stop it.

A turn is what happened since the user last spoke. Nothing here is sure of itself: what looks like a habit costs a hint first, and
a call whose result changes (polling) is none.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from callsmith.core.values import Call, Json, Message, Request, Tool

MOST_CALLS = 5  # of one tool in one turn
LONGEST_CYCLE = 4


@dataclass(frozen=True, slots=True)
class Advice:
    """What the model is told. `stop`: it may call no more. `spent`: a tool it may call no more. `anew`: it had better not see how
    it got here, or it will go on like that.
    """

    hint: str = ""
    stop: bool = False
    spent: str = ""
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A call and what came of it. `mark` is the same for steps that differ only in white space, case, or the order of keys."""

    call: Call
    result: str

    @property
    def mark(self) -> tuple[str, str, str]:
        return self.call.name, _folded(self.call.arguments), self.result


@dataclass(frozen=True, slots=True)
class Turn:
    """The rounds of answered calls since the user last spoke, if a result came last, and the tools that were offered."""

    rounds: tuple[tuple[Step, ...], ...]
    tools: Mapping[str, Tool]

    @classmethod
    def of(cls, request: Request) -> "Turn":
        said = [message.role for message in request.messages]
        begins = len(said) - said[::-1].index("user") if "user" in said else 0
        rounds = tuple(filter(None, _rounds(request.messages[begins:]))) if said[-1:] == ["tool"] else ()
        return cls(rounds, {tool.name: tool for tool in request.tools})

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(chain.from_iterable(self.rounds))


def repeats(turn: Turn) -> Advice | None:
    """The same call again, with the same result."""
    return _again(turn.steps, 1)


def cycles(turn: Turn) -> Advice | None:
    """The same two or more calls in turn, again and again, with the same results."""
    found = [advice for length in range(2, LONGEST_CYCLE + 1) if (advice := _again(turn.steps, length))]
    return max(found, key=lambda advice: advice.stop, default=None)


def echoes(turn: Turn) -> Advice | None:
    """Arguments copied from what the model was shown: a result that does not fit, the tool's schema, or its description."""
    shown: list[str] = []
    copied: list[Step] = []
    for steps in turn.rounds:
        copied += [step for step in steps if _is_copy(step.call, turn.tools.get(step.call.name), shown)]
        shown += [_folded(_parsed(step.result)) for step in steps]
    latest = next((step for step in reversed(turn.rounds[-1]) if step in copied), None)
    if latest is None:
        return None
    hint = f"The arguments of {latest.call.name} were only copied from above. Give values taken from the request, or answer it."
    return Advice(hint, stop=len(copied) > 1)


def missing(turn: Turn) -> Advice | None:
    """Required arguments left out, or all of them empty."""
    for step in turn.rounds[-1]:
        tool = turn.tools.get(step.call.name)
        if tool is not None and (names := _lacking(tool, step.call)):
            times = sum(1 for other in turn.steps if other.call.name == tool.name and _lacking(tool, other.call))
            needed = ", ".join(_described(tool, name) for name in names)
            hint = f"{tool.name} cannot do without: {needed}. If the request does not say, ask the user."
            return Advice(hint, stop=times > 1)
    return None


def budgets(turn: Turn) -> Advice | None:
    """One tool called too often, whatever for."""
    counts = Counter(step.call.name for step in turn.steps)
    name, times = counts.most_common(1)[0]
    if times < MOST_CALLS:
        return None
    return Advice(f"{name} was called {times} times: that is enough.", stop=times > MOST_CALLS, spent=name)


def _again(steps: Sequence[Step], length: int) -> Advice | None:
    """Whether the last so many steps were made before, just before: the second time brings a hint, the third is the last."""
    marks = [step.mark for step in steps]
    last = marks[-length:]
    if length > 1 and len(set(last)) == 1:  # a shorter cycle
        return None
    times = 1
    while len(marks) >= (times + 1) * length and marks[-(times + 1) * length : -times * length] == last:
        times += 1
    if times < 2:
        return None
    return Advice("Making the same calls again gives the same results.", stop=times > 2, anew=True)


def _rounds(messages: Sequence[Message]) -> Iterator[tuple[Step, ...]]:
    for index, message in enumerate(messages):
        if not message.calls:
            continue
        results: dict[str, str] = {}
        for later in messages[index + 1 :]:
            if later.role != "tool":
                break
            results[later.call_id] = later.content
        yield tuple(Step(call, results[call.id]) for call in message.calls if call.id in results)


def _is_copy(call: Call, tool: Tool | None, shown: Sequence[str]) -> bool:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {}) if tool else {}
    if tool is None or not call.arguments:
        return False
    # A result that fits goes from tool to tool for good reasons.
    if _folded(call.arguments) in shown and not call.arguments.keys() <= properties.keys():
        return True
    if _folded(call.arguments) in (_folded(tool.parameters), _folded(properties)):
        return True
    return any(_is_description(value, properties.get(name), tool) for name, value in call.arguments.items())


def _is_description(value: Json, schema: Json, tool: Tool) -> bool:
    words = [_folded(text) for text in (tool.description, _description(schema)) if text]
    return bool(value) and (value == schema or (isinstance(value, str) and _folded(value) in words))


def _description(schema: Json) -> str:
    words = cast("Mapping[str, Any]", schema).get("description") if isinstance(schema, Mapping) else None
    return words if isinstance(words, str) else ""


def _lacking(tool: Tool, call: Call) -> list[str]:
    """The required arguments that are not there. Some may well be empty; if all of them are, none is there."""
    required = list(tool.parameters.get("required", ()))
    absent = [name for name in required if name not in call.arguments]
    empty = all(_is_blank(call.arguments.get(name)) for name in required)
    return required if empty else absent


def _is_blank(value: Json) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or value in ([], {})


def _described(tool: Tool, name: str) -> str:
    words = _description(tool.parameters.get("properties", {}).get(name)).rstrip(".")
    return f"{name} ({words})" if words else name


def _folded(value: Json) -> str:
    """A value as text that differs only where it matters."""
    return json.dumps(_fold(value), sort_keys=True, default=str)


def _fold(value: Json) -> Json:
    match value:
        case str():
            return " ".join(value.split()).casefold()
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_fold(one) for one in cast("list[Json]", value)]
        case Mapping():
            return {name: _fold(one) for name, one in cast("Mapping[str, Json]", value).items()}
        case _:
            return value


def _parsed(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text
