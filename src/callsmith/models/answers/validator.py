"""Validates answers where no grammar could enforce all that was asked; what is invalid is asked for once more.

Only what is in doubt is withheld until it is complete: calls of tools whose schema has keywords no grammar enforces, calls in
formats that no grammar knows of, and text that must fit such a schema. Where no grammar constrained an answer, calls are withheld
until they can be read, but for long ones. The second attempt replaces the first. If it is no better it is passed on, for the
runtime validates calls before it runs them; only invalid text of a strict output is an error then, and a call of what is no tool
is left out.
"""

import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from callsmith.core.closing import closing
from callsmith.core.errors import CallsmithError, ModelError
from callsmith.core.events import (
    CUT,
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Report,
    Started,
    Stopped,
    Text,
    Unenforced,
    Unreadable,
)
from callsmith.core.schema import validate
from callsmith.core.values import Call, Choice, Json, Message, Request, Result, Schema, TokenLogprob
from callsmith.formats.inference.find_calls import FENCED

_LONG_CALL: Final = 2_000  # characters of arguments, from which on they are passed on as they come
_NOT_CALLED: Final = "a call was required, and {} answered without one, also when asked again"
Ask: TypeAlias = Callable[[Request], AsyncGenerator[ModelEvent, None]]
# What no grammar enforces of the tool of this name; of the output, for no name.
UnenforcedOf: TypeAlias = Callable[[str], Sequence[Unenforced]]
logger = logging.getLogger(__name__)
WHOLE_GRAMMAR = "grammar"  # stands for the keyword where nothing at all was enforced


def nothing_unenforced(name: str) -> Sequence[Unenforced]:
    """What is not enforced of a tool whose calls a grammar constrains wholly."""
    return ()


def all_unenforced(names: Iterable[str], path: str, keyword: str) -> UnenforcedOf:
    """Everything of the tools of these names, and of the output if an empty one is among them."""
    known = frozenset(names)
    return lambda name: (Unenforced(name, path, keyword),) if name in known else ()


class AnswerValidator:
    """Validates one answer: `filter` passes on what is not in doubt, `finish` what has come of the rest.

    `ask` is None where nothing can take the place of invalid parts, as in an answer that goes on from a prefilled one.
    `must_call`: nothing has held the model to a call. Text is withheld until it makes one, which it is asked for once more;
    `server` is who is to be named if it still makes none. `checks_all_calls`: calls may have come in a format that the grammar
    knows nothing of. `is_unconstrained`: there was no grammar, and what cannot be read as a call is asked for once more.
    """

    def __init__(
        self,
        request: Request,
        unenforced: UnenforcedOf,
        ask: Ask | None,
        *,
        must_call: bool = False,
        server: str = "",
        checks_all_calls: bool = False,
        is_unconstrained: bool = False,
    ) -> None:
        self._request = request
        self._unenforced = unenforced
        self._ask = ask
        self._must_call = must_call
        self._server = server
        self._checks_all_calls = checks_all_calls
        self._is_unconstrained = is_unconstrained
        self._schemas = {tool.name: tool.parameters for tool in request.tools}
        self._named = request.choice.names  # no other may be called, where there are some
        self._begun: dict[int, list[ModelEvent]] = {}
        self._sizes: dict[int, int] = {}  # of calls that only have to be readable
        self._unreadable: dict[int, Sequence[ModelEvent]] = {}  # calls that cannot be read, as they came
        self._invalid: list[tuple[CallReady, str]] = []
        self._doubts: dict[Unenforced, None] = {}  # what no grammar enforced of the tools called so far and of the output
        self._text: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._has_begun_call = False
        self._has_called = False  # and the caller has seen it
        self._stopped = Stopped("stop")
        self._output: Schema | None = request.output.schema if request.output and self._is_doubted("") else None

    def filter(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        """The events that can be passed on now; the end never is."""
        for event in events:
            match event:
                case Stopped():
                    self._stopped = event
                case Text(text, logprobs) if self._output is not None or (self._must_call and not self._has_begun_call):
                    self._text.append(text)
                    self._logprobs += logprobs
                case CallStarted() | CallArguments() | CallReady() | Unreadable():
                    for checked in self._filter_call(event):
                        self._has_called |= isinstance(checked, CallReady)
                        yield checked
                case _:
                    yield event

    def _filter_call(self, event: CallStarted | CallArguments | CallReady | Unreadable) -> Iterator[ModelEvent]:
        if isinstance(event, CallStarted):
            self._has_begun_call = True
            if self._must_call and self._text:
                yield Text("".join(self._text), tuple(self._logprobs))
                self._text, self._logprobs = [], []
        match event:
            case CallStarted(index, name) if self._is_doubted(name) or self._checks_all_calls or self._is_barred(name):
                self._begun[index] = [event]
            case CallStarted(index) if self._is_unconstrained:
                self._begun[index], self._sizes[index] = [event], 0
            case CallArguments(index, text) if index in self._begun:
                self._begun[index].append(event)
                if index in self._sizes:
                    self._sizes[index] += len(text)
                    if self._sizes[index] > _LONG_CALL:
                        yield from self._begun.pop(index)
            case CallReady(index, call) if index in self._begun:
                begun = self._begun.pop(index)
                complaint = self._call_complaint(call, is_checked=index not in self._sizes)
                if complaint:
                    self._invalid.append((event, complaint))
                else:
                    yield from (*begun, event)
            case Unreadable(reason=reason, index=int(index)) if index in self._begun:
                begun = self._begun.pop(index)
                assert isinstance(begun[0], CallStarted)
                self._unreadable[index] = (*begun, event)
                self._invalid.append((CallReady(index, Call(begun[0].name, {}, begun[0].id)), f"cannot be read: {reason}"))
            case _:
                yield event

    async def finish(self) -> AsyncGenerator[ModelEvent, None]:
        """The rest of the answer, with what `ask` returns in place of its invalid parts."""
        if self._must_call and not self._has_begun_call and self._stopped.reason == "stop":
            for event in await self._require_call():
                yield event
        for ready, complaint in self._invalid:
            for event in await self._replace_call(ready, complaint):
                if not (self._has_called and isinstance(event, Text)):
                    self._has_called |= isinstance(event, CallReady)
                    yield event
        text, logprobs = await self._valid_output()
        if text:
            yield Text(text, logprobs)
        reason = self._stopped.reason
        if self._invalid and reason in ("stop", "calls"):
            reason = "calls" if self._has_called else "stop"
        yield replace(self._stopped, reason=reason, report=self._stopped.report + Report(tuple(self._doubts)))

    async def _require_call(self) -> list[ModelEvent]:
        """The answer to the demand for a call; without one, the first answer stays, and that is reported."""
        second = await self._ask_again(_demand_call(self._request, "".join(self._text)))
        if not self._server:
            self._doubts[Unenforced("", "#", "tool_choice")] = None
        if any(isinstance(event, CallReady) for event in second):
            self._text, self._logprobs, spent = [], [], self._stopped
            checked = list(self.filter(event for event in second if not isinstance(event, Started)))
            self._stopped = replace(self._stopped, usage=spent.usage, report=spent.report + self._stopped.report)
            return checked
        if self._server:
            notice = Report(notices=(_NOT_CALLED.format(self._server),))
            self._stopped = replace(self._stopped, report=self._stopped.report + notice)
        return []

    async def _replace_call(self, first: CallReady, complaint: str) -> list[ModelEvent]:
        """The second attempt under the index and the id of the first. If there is none, the first as it came, or, where it is no
        call of a tool, what was said instead."""
        unreadable, is_tool = self._unreadable.get(first.index, ()), first.call.name in self._schemas
        if unreadable and self._stopped.reason in CUT:  # it would be cut off again
            return [*unreadable]
        second = await self._ask_again(_call_again(self._request, first, complaint))
        calls = (event for event in second if isinstance(event, CallReady) and event.call.name in self._schemas)
        again = next(calls, None)
        if again is None and not is_tool:
            return [event for event in second if isinstance(event, Text)]
        if again is None and unreadable:
            return [*unreadable]
        again = again or first
        call = replace(again.call, id=first.call.id)
        started, arguments = CallStarted(first.index, call.name, call.id), CallArguments(first.index, call.text)
        return [started, arguments, CallReady(first.index, call, again.repairs)]

    async def _valid_output(self) -> tuple[str, tuple[TokenLogprob, ...]]:
        """The withheld text; where it is an output that is invalid, what comes in its place."""
        text, logprobs = self._strip_fence("".join(self._text), tuple(self._logprobs))
        if not text or self._output is None or self._stopped.reason != "stop" or not (complaint := self._text_complaint(text)):
            return text, logprobs
        second = await self._ask_again(_say_again(self._request, text, complaint))
        if again := [event for event in second if isinstance(event, Text)]:
            again_text = "".join(event.text for event in again)
            text, logprobs = self._strip_fence(again_text, tuple(token for event in again for token in event.logprobs))
        self._stopped = replace(self._stopped, reason=_end_of(second).reason)
        is_strict = self._request.output is not None and self._request.output.strict and self._stopped.reason == "stop"
        if is_strict and (complaint := self._text_complaint(text)):
            raise ModelError(f"the answer does not fit the schema, also when asked again: {complaint}", retryable=True)
        return text, logprobs

    async def _ask_again(self, request: Request) -> list[ModelEvent]:
        """The whole second answer; empty if it fails, as when the prompt has become too long. Its cost is added to the first."""
        events: list[ModelEvent] = []
        if self._ask is None:
            return events
        try:
            async with closing(self._ask(request)) as answer:
                async for event in answer:
                    events.append(event)
        except CallsmithError:
            events = []
        report = self._stopped.report + Report(retries=1)
        self._stopped = replace(self._stopped, usage=self._stopped.usage + _end_of(events).usage, report=report)
        return events

    def _is_doubted(self, name: str) -> bool:
        unenforced = self._unenforced(name)
        self._doubts |= dict.fromkeys(unenforced)
        return bool(unenforced)

    def _is_barred(self, name: str) -> bool:
        return name not in self._schemas or (bool(self._named) and name not in self._named)

    def _call_complaint(self, call: Call, *, is_checked: bool) -> str:
        schema = self._schemas.get(call.name)
        if schema is None:
            return f"there is no tool {call.name!r}"
        if self._is_barred(call.name):
            return f"{call.name} may not be called now, but {', '.join(self._named)}"
        return _complaint(schema, call.arguments) if is_checked else ""

    def _strip_fence(self, text: str, logprobs: tuple[TokenLogprob, ...]) -> tuple[str, tuple[TokenLogprob, ...]]:
        """The text, without a fence around a valid output: clients that asked for JSON read nothing else."""
        fence = FENCED.fullmatch(text.strip()) if self._output is not None else None
        return (text, logprobs) if fence is None or self._text_complaint(fence["code"]) else (fence["code"].strip(), ())

    def _text_complaint(self, text: str) -> str:
        """What is wrong with the text of an output; empty if it is valid."""
        return output_complaint(self._output or {}, text)


def output_complaint(schema: Schema, text: str) -> str:
    """Why a text is no JSON of this schema; empty if it is."""
    try:
        return _complaint(schema, json.loads(text))
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


def _demand_call(request: Request, text: str) -> Request:
    """The request once more, after an answer of this text, with the demand for a call."""
    names = ", ".join(tool.name for tool in request.choice.among(request.tools))
    retry = Message.user(f"This is no tool call, and one is required. Call one of these tools: {names}.")
    return replace(request, messages=(*request.messages, *([Message.assistant(text)] if text else []), retry))


def _say_again(request: Request, text: str, complaint: str) -> Request:
    retry = Message.user(f"This answer is not valid: {complaint}. Answer again.")
    return replace(request, messages=(*request.messages, Message.assistant(text), retry), choice=Choice("none"))


def _end_of(events: Sequence[ModelEvent]) -> Stopped:
    return next((event for event in reversed(events) if isinstance(event, Stopped)), Stopped("stop"))


class Enforcement:
    """Whether an engine enforces the grammars it is given (`is_known`): a server in the middle may drop a field without a word.

    What an answer under a grammar should never show is looked for in every answer. Once it is seen, answers are read and
    validated as those of a model that nothing constrains.
    """

    def __init__(self, name: str, *, is_known: bool = True) -> None:
        self._name = name
        self.is_known = is_known

    def list_unenforced(self, request: Request) -> UnenforcedOf:
        """Everything of every tool and of the output: for engines that ignore grammars."""
        output = ("",) if request.output is not None else ()
        return all_unenforced((*output, *(tool.name for tool in request.tools)), "#", WHOLE_GRAMMAR)

    def report_violation(self, problem: str) -> None:
        """Take note that a grammar was not enforced."""
        if self.is_known:
            self.is_known = False
            logger.warning(
                "%s ignores grammars: %s. From now on its calls are validated, and invalid ones asked for once more.",
                self._name,
                problem,
            )


class ViolationDetector:
    """Looks for what a grammar rules out in one answer that was given under it; that is logged once and reported."""

    def __init__(self, enforcement: Enforcement, request: Request, unenforced: UnenforcedOf) -> None:
        self._enforcement = enforcement
        self._request = request
        self._unenforced = unenforced
        self._schemas = {tool.name: tool.parameters for tool in request.choice.among(request.tools)}
        self._text: list[str] = []
        self._calls = 0
        self._problem = ""

    def filter(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        """The events as they are; a violation is reported with the end."""
        for event in events:
            if (problem := self.check(event)) and isinstance(event, Stopped):
                self._enforcement.report_violation(problem)
                event = replace(event, report=event.report + Report((Unenforced("", "#", WHOLE_GRAMMAR),)))
            yield event

    def check(self, event: ModelEvent) -> str:
        """What is wrong so far; empty if nothing. Whether the answer is complete is only known at its end."""
        match event:
            case CallReady(call=call):
                self._calls += 1
                if call.name not in self._schemas:
                    self._problem = self._problem or f"it called {call.name!r}, which is no tool that may be called"
                elif not self._unenforced(call.name) and validate(self._schemas[call.name], call.arguments):
                    self._problem = self._problem or f"arguments of {call.name!r} did not fit its schema"
            case Unreadable():
                self._problem = self._problem or "a call could not be read"
            case Text(text):
                self._text.append(text)
            case Stopped():
                is_cut = event.reason in CUT or event.matched
                return "" if is_cut else self._problem or self._at_end()
            case _:
                pass
        return ""

    def _at_end(self) -> str:
        request = self._request
        if self._calls:
            return ""
        if request.choice.mode == "required":
            return "it made no call where one was required"
        if request.output and request.output.schema is not None and not self._unenforced(""):
            complaint = output_complaint(request.output.schema, "".join(self._text))
            return "its text did not fit the schema" if complaint else ""
        return ""
