"""Validates answers where no grammar could enforce all that was asked; what is invalid is asked for once more.

Only what is in doubt is withheld until it is complete: calls of tools whose schema has keywords no grammar enforces, calls in
formats that no grammar knows of, and text that must fit such a schema. Where no grammar held an answer, calls are withheld until
they can be read, but for long ones. The second attempt replaces the first. If it is no better it is passed on, for the runtime
validates calls before it runs them; only invalid text of a strict output is an error then, and a call of what is no tool is left
out.
"""

import json
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final, TypeAlias

from callsmith.core.errors import CallsmithError, ModelError
from callsmith.core.events import (
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Report,
    Started,
    Stopped,
    Text,
    Thought,
    Unenforced,
    Unreadable,
)
from callsmith.core.schema import validate
from callsmith.core.values import Call, Choice, Json, Message, Request, Result, Schema, TokenLogprob, Usage
from callsmith.formats.inference.find_calls import FENCED

_LONG_CALL: Final = 2_000  # characters of arguments, from which on they are passed on as they come
Ask: TypeAlias = Callable[[Request], AsyncGenerator[ModelEvent, None]]
UnenforcedOf: TypeAlias = Callable[
    [str], Sequence[Unenforced]
]  # what no grammar enforces of this tool; of the output, for no name


def nothing_unenforced(name: str) -> Sequence[Unenforced]:
    """What is not enforced of a tool whose calls a grammar holds wholly."""
    return ()


async def checked(
    first: AsyncGenerator[ModelEvent, None],
    request: Request,
    unenforced: UnenforcedOf,
    ask: Ask | None,
    *,
    is_free: bool = False,
    every_call: bool = False,
    is_unheld: bool = False,
) -> AsyncGenerator[ModelEvent, None]:
    """The first answer to the request, with what `ask` returns in place of its invalid parts. `ask` is None where nothing can
    take their place, as in an answer that goes on from a prefilled one.

    `is_free`: nothing has held the model to a call that is required. Text is withheld until it makes one, which it is asked for
    once more. `every_call`: calls may have come in a format that the grammar knows nothing of, so that all are validated.
    `is_unheld`: there was no grammar, and what cannot be read as a call is asked for once more.
    """
    must_call = is_free and request.choice.mode == "required"
    withheld = _Withheld(request, unenforced, must_call=must_call, every_call=every_call, is_unheld=is_unheld)
    stopped, retries, spent, called = Stopped("stop"), 0, Usage(), False
    async with aclosing(first) as events:
        async for event in events:
            if isinstance(event, Stopped):
                stopped = event
            for shown in withheld.sift(event):
                called |= isinstance(shown, CallReady)
                yield shown
    for ready, complaint in withheld.invalid:
        broken = withheld.broken.get(ready.index, ())
        if broken and stopped.reason == "length":  # it would be cut off again
            for shown in broken:
                yield shown
            continue
        retries += ask is not None
        second = await collect(ask, _call_again(request, ready, complaint))
        spent += _end(second).usage
        for shown in _replaced(ready, second, broken, withheld.names):
            if called and isinstance(shown, Text):
                continue
            called |= isinstance(shown, CallReady)
            yield shown
    if withheld.must_call and not withheld.calls and stopped.reason == "stop":
        retries += 1
        withheld.doubts[Unenforced("", "#", "tool_choice")] = None
        second = await collect(ask, ask_for_call(request, "".join(withheld.text)))
        spent += _end(second).usage
        if any(isinstance(event, CallReady) for event in second):
            withheld.text.clear()
            stopped = replace(stopped, reason=_end(second).reason)
            called = True
            for event in second:
                if not isinstance(event, Started | Text | Thought | Stopped):
                    yield event
    text, logprobs = withheld.output("".join(withheld.text), tuple(withheld.logprobs))
    if text and withheld.has_output and stopped.reason == "stop" and (complaint := withheld.complaint(text)):
        retries += 1
        second = await collect(ask, _say_again(request, text, complaint))
        spent += _end(second).usage
        again = [event for event in second if isinstance(event, Text)]
        if again:
            text = "".join(event.text for event in again)
            text, logprobs = withheld.output(text, tuple(one for event in again for one in event.logprobs))
        stopped = replace(stopped, reason=_end(second).reason)
        strict = request.output is not None and request.output.strict and stopped.reason == "stop"
        if strict and (complaint := withheld.complaint(text)):
            raise ModelError(f"the answer does not fit the schema, also when asked again: {complaint}", retryable=True)
    if text:
        yield Text(text, logprobs)
    if withheld.invalid and stopped.reason in ("stop", "calls"):
        stopped = replace(stopped, reason="calls" if called else "stop")
    yield replace(stopped, usage=stopped.usage + spent, report=stopped.report + Report(tuple(withheld.doubts), retries))


class _Withheld:
    """The withheld events. `doubts` is what no grammar enforced of the tools called so far and of the output."""

    def __init__(self, request: Request, unenforced: UnenforcedOf, *, must_call: bool, every_call: bool, is_unheld: bool) -> None:
        self._unenforced = unenforced
        self._every_call = every_call
        self._is_unheld = is_unheld
        self._sizes: dict[int, int] = {}  # of calls that only have to be readable
        self.broken: dict[int, Sequence[ModelEvent]] = {}  # calls that cannot be read, as they came
        self.must_call = must_call
        self.calls = 0
        self._schemas = {tool.name: tool.parameters for tool in request.tools}
        self._named = request.choice.names  # no other may be called, where there are some
        self._begun: dict[int, list[ModelEvent]] = {}
        self.doubts: dict[Unenforced, None] = {}
        self.text: list[str] = []
        self.logprobs: list[TokenLogprob] = []
        self.invalid: list[tuple[CallReady, str]] = []
        self._output: Schema | None = request.output.schema if request.output and self._doubted("") else None

    @property
    def names(self) -> Collection[str]:
        """The tools there are."""
        return self._schemas.keys()

    @property
    def has_output(self) -> bool:
        """Whether the text is an output that has to be validated."""
        return self._output is not None

    def _doubted(self, name: str) -> bool:
        unenforced = self._unenforced(name)
        self.doubts |= dict.fromkeys(unenforced)
        return bool(unenforced)

    def _is_barred(self, name: str) -> bool:
        return name not in self._schemas or (bool(self._named) and name not in self._named)

    def sift(self, event: ModelEvent) -> Iterator[ModelEvent]:
        """The events that can be passed on now."""
        if isinstance(event, CallStarted):
            self.calls += 1
            if self.must_call and self.text:
                yield Text("".join(self.text), tuple(self.logprobs))
                self.text, self.logprobs = [], []
        match event:
            case Stopped():
                pass
            case Text(text, logprobs) if self._output is not None or (self.must_call and not self.calls):
                self.text.append(text)
                self.logprobs += logprobs
            case CallStarted(index, name) if self._doubted(name) or self._every_call or self._is_barred(name):
                self._begun[index] = [event]
            case CallStarted(index) if self._is_unheld:
                self._begun[index], self._sizes[index] = [event], 0
            case CallArguments(index, text) if index in self._begun:
                self._begun[index].append(event)
                if index in self._sizes:
                    self._sizes[index] += len(text)
                    if self._sizes[index] > _LONG_CALL:
                        yield from self._begun.pop(index)
            case CallReady(index, call) if index in self._begun:
                begun = self._begun.pop(index)
                complaint = self._complaint_of(call, is_checked=index not in self._sizes)
                if complaint:
                    self.invalid.append((event, complaint))
                else:
                    yield from (*begun, event)
            case Unreadable(reason=reason, index=int(index)) if index in self._begun:
                begun = self._begun.pop(index)
                assert isinstance(begun[0], CallStarted)
                self.broken[index] = (*begun, event)
                self.invalid.append((CallReady(index, Call(begun[0].name, {}, begun[0].id)), f"cannot be read: {reason}"))
            case _:
                yield event

    def _complaint_of(self, call: Call, *, is_checked: bool) -> str:
        schema = self._schemas.get(call.name)
        if schema is None:
            return f"there is no tool {call.name!r}"
        if self._is_barred(call.name):
            return f"{call.name} may not be called now, but {', '.join(self._named)}"
        return _complaint(schema, call.arguments) if is_checked else ""

    def output(self, text: str, logprobs: tuple[TokenLogprob, ...]) -> tuple[str, tuple[TokenLogprob, ...]]:
        """The text, without a fence around a valid output: clients that asked for JSON read nothing else."""
        fence = FENCED.fullmatch(text.strip()) if self.has_output else None
        return (text, logprobs) if fence is None or self.complaint(fence["code"]) else (fence["code"].strip(), ())

    def complaint(self, text: str) -> str:
        """What is wrong with the text; empty if it is valid."""
        try:
            return _complaint(self._output or {}, json.loads(text))
        except (ValueError, RecursionError) as error:
            return f"not JSON: {error}"


def _complaint(schema: Schema, value: Json) -> str:
    return "; ".join(map(str, validate(schema, value)))


def _call_again(request: Request, ready: CallReady, complaint: str) -> Request:
    call = ready.call
    result = Result(call.id, call.name, f"invalid_arguments: {complaint}", ok=False, code="invalid_arguments")
    messages = (*request.messages, Message.assistant(calls=[call]), Message.tool(result))
    tools = request.choice.among(request.tools) or request.tools  # a server that ignores choices is shown no others
    is_known = any(tool.name == call.name for tool in tools)
    choice = Choice.only(call.name) if is_known else Choice(request.choice.mode, request.choice.names)
    return replace(request, messages=messages, tools=tools, choice=choice, parallel=False)


def ask_for_call(request: Request, text: str) -> Request:
    """The request once more, after an answer of this text, with the demand for a call."""
    names = ", ".join(tool.name for tool in request.choice.among(request.tools))
    retry = Message.user(f"This is no tool call, and one is required. Call one of these tools: {names}.")
    return replace(request, messages=(*request.messages, *([Message.assistant(text)] if text else []), retry))


def _say_again(request: Request, text: str, complaint: str) -> Request:
    retry = Message.user(f"This answer is not valid: {complaint}. Answer again.")
    return replace(request, messages=(*request.messages, Message.assistant(text), retry), choice=Choice("none"))


async def collect(ask: Ask | None, request: Request) -> list[ModelEvent]:
    """The whole second answer; empty if it fails, as when the prompt has become too long."""
    events: list[ModelEvent] = []
    if ask is None:
        return events
    try:
        async with aclosing(ask(request)) as answer:
            async for event in answer:
                events.append(event)
    except CallsmithError:
        return []
    return events


def _end(events: Sequence[ModelEvent]) -> Stopped:
    return next((event for event in reversed(events) if isinstance(event, Stopped)), Stopped("stop"))


def _replaced(
    first: CallReady, second: Sequence[ModelEvent], broken: Sequence[ModelEvent], names: Collection[str]
) -> Iterator[ModelEvent]:
    """The second attempt under the index and the id of the first. If there is none, the first as it came, or, where it is no call
    of a tool, what was said instead."""
    again = next((event for event in second if isinstance(event, CallReady) and event.call.name in names), None)
    if again is None and (broken or first.call.name not in names):
        yield from (event for event in second if isinstance(event, Text)) if first.call.name not in names else broken
        return
    again = again or first
    call = replace(again.call, id=first.call.id)
    yield CallStarted(first.index, call.name, call.id)
    yield CallArguments(first.index, call.text)
    yield CallReady(first.index, call, again.repairs)
