"""Detectors of the loops that small models get into: each is a function from the recent calls to a hint for the model.

The recent calls are those since the last message of the user. A detector may be wrong, so that the first time costs only a hint;
a call whose result changes (polling) is no loop.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from callsmith.core.failures import is_failure
from callsmith.core.values import Call, Json, Message, Request, Tool

MOST_CALLS = 5  # of one tool in one turn
LONGEST_CYCLE = 4
_LONG_NUMBER = re.compile(r"\d(?:[,.'\u2019\u00a0\u202f]?\d){3,}")


@dataclass(frozen=True, slots=True)
class Advice:
    """What a detector advises: a hint for the model, and what it may still do.

    `stop`: no more calls. `exhausted_tool`: no more calls of this tool. `hide_calls`: leave the calls out of the request, because
    a model that sees them repeats them.
    """

    hint: str = ""
    stop: bool = False
    exhausted_tool: str = ""
    hide_calls: bool = False


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A call and its result. The `fingerprint` ignores white space, case and the order of keys."""

    call: Call
    result: str

    @property
    def fingerprint(self) -> tuple[str, str, str]:
        return self.call.name, _normalized_text(self.call.arguments), self.result


@dataclass(frozen=True, slots=True)
class RecentCalls:
    """The rounds of answered calls since the last message of the user, the tools that were offered, and that message.

    There are none unless the last message is a result.
    """

    rounds: tuple[tuple[AnsweredCall, ...], ...]
    tools: Mapping[str, Tool]
    question: str = ""

    @classmethod
    def of(cls, request: Request) -> "RecentCalls":
        roles = [message.role for message in request.messages]
        begins = len(roles) - roles[::-1].index("user") if "user" in roles else 0
        rounds = tuple(filter(None, _rounds(request.messages[begins:]))) if roles[-1:] == ["tool"] else ()
        question = request.messages[begins - 1].content if begins else ""
        return cls(rounds, {tool.name: tool for tool in request.tools}, question)

    @property
    def calls(self) -> tuple[AnsweredCall, ...]:
        return tuple(chain.from_iterable(self.rounds))

    def has_called(self, name: str) -> bool:
        return any(step.call.name == name for step in self.calls)

    def is_new(self, call: Call) -> bool:
        """Whether a call is none of these again, as it is or with arguments that nobody has given.

        A call of the same tool with other arguments is new if one of those is in the question or in a part of a result. Small
        models feed results back (50 USD are 45 EUR: what are 45 USD?) and invent names. After a failure they may try what they
        like, but the failure's own text.
        """
        return all(self._differs(call, earlier) for earlier in self.calls if earlier.call.name == call.name)

    def knows_numbers(self, text: str) -> bool:
        """Whether all long numbers of a text stand in the question, a call or a result: small models add and drop digits."""
        seen = " ".join((self.question, *(f"{earlier.call.text} {earlier.result}" for earlier in self.calls)))
        digits = re.sub(r"\D", "", seen)
        return all(value in digits for value in (re.sub(r"\D", "", number) for number in _LONG_NUMBER.findall(text)))

    def _differs(self, call: Call, earlier: AnsweredCall) -> bool:
        before, tool = earlier.call.arguments, self.tools.get(call.name)
        known = tool.parameters.get("properties") if tool else None  # a result is also fed back as an argument of its own
        arguments = {name: value for name, value in call.arguments.items() if known is None or name in known}
        changed = [value for name, value in arguments.items() if _normalized_text(value) != _normalized_text(before.get(name))]
        if is_failure(earlier.result):
            return any(not self._is_result(value) for value in changed)
        return any(self._is_given(value) for value in changed)

    def _is_result(self, value: Json) -> bool:
        text = _normalized_text(value)
        return any(text in (_normalized_text(step.result), _normalized_text(_parse(step.result))) for step in self.calls)

    def _is_given(self, value: Json) -> bool:
        results = [earlier.result for earlier in self.calls]
        match value:
            case bool() | None:
                return True
            case int() | float():  # one that occurs nowhere, as the number of a page, is the model's to choose
                return value in _numbers(self.question) or not any(value in _numbers(text) for text in results)
            case str():
                word, is_in_results = _words(value), any(_words(value) in _words(text) for text in results)
                return word in _words(self.question) or (is_in_results and not self._is_result(value))
            case Mapping():
                return any(map(self._is_given, cast("Mapping[str, Json]", value).values()))
            case _:
                return any(map(self._is_given, cast("Sequence[Json]", value)))


def repeats(turn: RecentCalls) -> Advice | None:
    """The same call again, with the same result."""
    return _detect_repetition(turn.calls, 1)


def cycles(turn: RecentCalls) -> Advice | None:
    """The same sequence of two or more calls again, with the same results."""
    advices = [advice for length in range(2, LONGEST_CYCLE + 1) if (advice := _detect_repetition(turn.calls, length))]
    return max(advices, key=lambda advice: advice.stop, default=None)


def echoes(turn: RecentCalls) -> Advice | None:
    """Arguments copied from the prompt: a result that does not fit the parameters, the tool's schema, or its description."""
    texts: list[str] = []
    copied: list[AnsweredCall] = []
    for steps in turn.rounds:
        copied += [step for step in steps if _is_copy(step.call, turn.tools.get(step.call.name), texts)]
        texts += [_normalized_text(_parse(step.result)) for step in steps]
    latest = next((step for step in reversed(turn.rounds[-1]) if step in copied), None)
    if latest is None:
        return None
    hint = f"The arguments of {latest.call.name} were only copied from above. Give values taken from the request, or answer it."
    return Advice(hint, stop=len(copied) > 1)


def missing(turn: RecentCalls) -> Advice | None:
    """Required arguments left out, or all of them empty."""
    for step in turn.rounds[-1]:
        tool = turn.tools.get(step.call.name)
        if tool is not None and (names := _missing_arguments(tool, step.call)):
            times = sum(1 for other in turn.calls if other.call.name == tool.name and _missing_arguments(tool, other.call))
            needed = ", ".join(_describe(tool, name) for name in names)
            hint = f"{tool.name} cannot do without: {needed}. If the request does not say, ask the user."
            return Advice(hint, stop=times > 1)
    return None


def budgets(turn: RecentCalls) -> Advice | None:
    """One tool called too often, with whatever arguments."""
    counts = Counter(step.call.name for step in turn.calls)
    name, times = counts.most_common(1)[0]
    if times < MOST_CALLS:
        return None
    return Advice(f"{name} was called {times} times: that is enough.", stop=times > MOST_CALLS, exhausted_tool=name)


def _detect_repetition(calls: Sequence[AnsweredCall], length: int) -> Advice | None:
    """Advice if the last `length` calls repeat the ones just before them: a hint the second time, a stop the third."""
    marks = [call.fingerprint for call in calls]
    last = marks[-length:]
    if length > 1 and len(set(last)) == 1:  # a shorter cycle
        return None
    times = 1
    while len(marks) >= (times + 1) * length and marks[-(times + 1) * length : -times * length] == last:
        times += 1
    if times < 2:
        return None
    return Advice("Making the same calls again gives the same results.", stop=times > 2, hide_calls=True)


def _rounds(messages: Sequence[Message]) -> Iterator[tuple[AnsweredCall, ...]]:
    for index, message in enumerate(messages):
        if not message.calls:
            continue
        results: dict[str, str] = {}
        for at in range(index + 1, len(messages)):
            if messages[at].role != "tool":
                break
            results[messages[at].call_id] = messages[at].content
        yield tuple(AnsweredCall(call, results[call.id]) for call in message.calls if call.id in results)


def _is_copy(call: Call, tool: Tool | None, texts: Sequence[str]) -> bool:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {}) if tool else {}
    if tool is None or not call.arguments:
        return False
    # A result that fits the parameters may well be passed from tool to tool.
    if _normalized_text(call.arguments) in texts and not call.arguments.keys() <= properties.keys():
        return True
    if _normalized_text(call.arguments) in (_normalized_text(tool.parameters), _normalized_text(properties)):
        return True
    return any(_is_description(value, properties.get(name), tool) for name, value in call.arguments.items())


def _is_description(value: Json, schema: Json, tool: Tool) -> bool:
    words = [_normalized_text(text) for text in (tool.description, _description(schema)) if text]
    return bool(value) and (value == schema or (isinstance(value, str) and _normalized_text(value) in words))


def _description(schema: Json) -> str:
    words = cast("Mapping[str, Any]", schema).get("description") if isinstance(schema, Mapping) else None
    return words if isinstance(words, str) else ""


def _missing_arguments(tool: Tool, call: Call) -> list[str]:
    """The names of required arguments that are missing. Some may be empty; if all of them are, all count as missing."""
    required = list(tool.parameters.get("required", ()))
    absent = [name for name in required if name not in call.arguments]
    empty = all(_is_blank(call.arguments.get(name)) for name in required)
    return required if empty else absent


def _is_blank(value: Json) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or value in ([], {})


def _describe(tool: Tool, name: str) -> str:
    words = _description(tool.parameters.get("properties", {}).get(name)).rstrip(".")
    return f"{name} ({words})" if words else name


def _words(text: str) -> str:
    return " ".join(text.split()).casefold()


def _numbers(text: str) -> set[float]:
    return {float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text.replace(",", ""))}


def _normalized_text(value: Json) -> str:
    """A value as text, the same for values that differ only in white space, case, number type or the order of keys."""
    return json.dumps(_normalize(value), sort_keys=True, default=str)


def _normalize(value: Json) -> Json:
    match value:
        case str():
            return _words(value)
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_normalize(item) for item in cast("list[Json]", value)]
        case Mapping():
            return {name: _normalize(item) for name, item in cast("Mapping[str, Json]", value).items()}
        case _:
            return value


def _parse(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text
