"""The answer after tool results. A small model repeats its call, copies what it was shown, talks about the tool, or says nothing.

What is of no use is taken back before anybody sees or runs it, and the model is asked again, in up to three attempts:

1. as the request is: a new call is passed on, and so is text that is no copy;
2. with `LINE` behind the latest result: it may only answer, and its first sentence may neither refuse nor have a long number that
   nobody has seen before;
3. with the question and all results in one message, and without tools; if it misread a number, with digits in groups.

What is added is only in the request the model sees, never in the conversation.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from callsmith.core.closing import closing
from callsmith.core.events import (
    CUT,
    CallArguments,
    CallReady,
    CallStarted,
    ModelEvent,
    Started,
    Stopped,
    Text,
    Thought,
    Unreadable,
)
from callsmith.core.failures import is_failure
from callsmith.core.values import Choice, Request, Usage
from callsmith.runtime.guards.guard import Guard
from callsmith.runtime.guards.loop_detectors import RecentCalls

_LONG_INTEGER = re.compile(r"(?<![\w.,-])[1-9]\d{4,14}(?![\w-]|[.,]\d)")
ANSWER = "Now answer the previous request in one short sentence."

_FIRST_SENTENCE = re.compile(r".{200}|.*?[.!?]\s", re.DOTALL)
_REFUSAL = re.compile(r"\s*(?:I['\u2019]m|I am) sorry\b.*?\b(?:can['\u2019]t|cannot) (?:assist|help)", re.IGNORECASE | re.DOTALL)
LINE = "The call is done. Now answer the user in plain words, without calling a tool."


def with_line(request: Request, line: str) -> Request:
    """The request with a line behind the latest result: every template renders it there, and no unexpected role is needed."""
    *before, last = request.messages
    return replace(request, messages=(*before, replace(last, content=f"{last.content}\n{line}")))


def question_with_results(request: Request, hint: str = "") -> Request:
    """The user's question with all results behind it and without the calls: a small model that sees calls writes calls."""
    at = max((place for place, message in enumerate(request.messages) if message.role == "user"), default=None)
    if at is None:
        return with_line(request, f"({hint or ANSWER})")
    steps = {step.fingerprint: step for step in RecentCalls.of(request).calls}.values()
    times = Counter(step.call.name for step in steps)
    results = [f"{step.call.name}{f' {step.call.text}' * (times[step.call.name] > 1)} -> {step.result}" for step in steps]
    user_message = request.messages[at]
    question = replace(user_message, content=f"{user_message.content}\n\n{list_results(results, hint)}")
    return replace(request, messages=(*request.messages[:at], question), policy="auto")


def with_grouped_digits(request: Request) -> Request:
    """The request with 97310 as 97,310 in its last message: small models misread long rows of digits."""
    *before, last = request.messages
    content = _LONG_INTEGER.sub(lambda match: f"{int(match[0]):,}", last.content)
    return replace(request, messages=(*before, replace(last, content=content)))


def list_results(results: Iterable[str], hint: str = "") -> str:
    """Results in one line, for a message of the user's."""
    return f"(system: tool results — {'; '.join(results)}. {hint and hint + ' '}{ANSWER})"


class AnswerGuard(Guard):
    """Takes back repeated calls, copies and empty answers after a result, and asks again."""

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        recent = RecentCalls.of(request)
        is_plain = not recent.rounds or request.choice.mode == "required"
        return self._model.stream(request) if is_plain else self._screen_attempts(request, recent)

    async def _screen_attempts(self, request: Request, recent: RecentCalls) -> AsyncIterator[ModelEvent]:
        spent, taken_back = Usage(), list[str]()  # over the attempts so far
        for attempt in self._attempts(request, recent):
            async with closing(self._model.stream(attempt.request)) as events:
                async for event in events:
                    for screened in attempt.screen(event):
                        if isinstance(screened, Started) and taken_back:
                            continue
                        if isinstance(screened, Stopped) and (taken_back or attempt.dropped):
                            report = replace(screened.report, taken_back=(*taken_back, *attempt.dropped))
                            yield replace(screened, usage=spent + screened.usage, report=report)
                        else:
                            yield screened
                    if attempt.flaw:
                        break
            if not attempt.flaw:
                return
            spent += attempt.usage
            taken_back.append(attempt.flaw)

    def _attempts(self, request: Request, recent: RecentCalls) -> "Iterator[_AnswerAttempt]":
        """The requests to try one after another; of the last one everything is taken but calls."""
        may_call = request.choice.mode == "auto" and bool(request.tools)
        copies = frozenset[str]() if request.output else _copies(recent)  # where JSON is wanted, it is an answer
        yield _AnswerAttempt(request, recent, copies, takes_calls=may_call)
        sampling = request.sampling if request.sampling.temperature is not None else replace(request.sampling, temperature=0.0)
        sure = replace(request, sampling=sampling)  # to read an answer off the results, nothing needs to be drawn
        second = _AnswerAttempt(with_line(sure, LINE), recent, copies, takes_calls=False, checks_sentence=not request.output)
        yield second
        listed = question_with_results(sure)
        last = with_grouped_digits(listed) if second.flaw == "unknown_number" else listed
        yield _AnswerAttempt(replace(last, choice=Choice("none")), takes_calls=False)


@dataclass(slots=True)
class _AnswerAttempt:
    """A request, and what is passed on of the answer to it: nothing until it is known to be of use.

    Without `recent` calls all text is of use. `flaw` says what is wrong with the answer, `dropped` what is left out of it.
    """

    request: Request
    recent: RecentCalls | None = None
    copies: frozenset[str] = frozenset()
    takes_calls: bool = True
    checks_sentence: bool = False  # the first one, which is withheld for it
    flaw: str = ""
    dropped: list[str] = field(default_factory=list[str])
    usage: Usage = field(default_factory=Usage)
    _texts: list[ModelEvent] = field(default_factory=list[ModelEvent])  # withheld
    _calls: dict[int, list[ModelEvent]] = field(default_factory=dict[int, list[ModelEvent]])  # withheld, by index
    _is_useful: bool = False
    _has_called: bool = False

    def screen(self, event: ModelEvent) -> Sequence[ModelEvent]:
        """What can be passed on now."""
        match event:
            case Text():
                return self._text(event)
            case CallStarted(index, name) if not self._trusts(name):
                self._calls[index] = [event]
            case CallArguments(index) if index in self._calls:
                self._calls[index].append(event)
            case CallReady(index, call) if index in self._calls or not self._trusts(call.name):
                begun = self._calls.pop(index, [])
                if self.takes_calls and self.recent is not None and self.recent.is_new(call):
                    return self._release(*begun, event, is_call=True)
                self.dropped.append("repeated_call" if self.takes_calls else "call")
            case Unreadable(index=int(index)) if index in self._calls:
                return self._release(*self._calls.pop(index), event)
            case CallStarted() | CallArguments() | CallReady():
                return self._release(event, is_call=True)
            case Unreadable():
                return self._release(event)
            case Stopped():
                return self._end(event)
            case Started() | Thought():
                return (event,)
        return ()

    def _trusts(self, name: str) -> bool:
        """Whether a call of this tool is new whatever its arguments are."""
        return self.takes_calls and (self.recent is None or not self.recent.has_called(name))

    def _text(self, event: Text) -> Sequence[ModelEvent]:
        if self._is_useful or self.recent is None:
            return self._release(event)
        self._texts.append(event)
        waits = self._copies() or (self.checks_sentence and not _FIRST_SENTENCE.match(self._text_so_far()))
        return () if waits else self._judge()

    def _judge(self, *last: ModelEvent) -> Sequence[ModelEvent]:
        """Pass the text on, unless it refuses to answer or has a number of its own."""
        if self.checks_sentence and self.recent is not None:
            text = self._text_so_far()
            if _REFUSAL.match(text) and not any(is_failure(answered.result) for answered in self.recent.rounds[-1]):
                self.flaw = "refusal"
            elif not self.recent.knows_numbers(text):
                self.flaw = "unknown_number"
        return () if self.flaw else self._release(*last)

    def _copies(self) -> bool:
        """Whether the text so far says nothing, or may become a copy."""
        text = self._said()
        return not text or any(copy.startswith(text) for copy in self.copies)

    def _text_so_far(self) -> str:
        return "".join(event.text for event in self._texts if isinstance(event, Text))

    def _said(self) -> str:
        return "".join(self._text_so_far().split())

    def _release(self, *events: ModelEvent, is_call: bool = False) -> Sequence[ModelEvent]:
        """The answer is of use: pass on these events, and before them what was withheld."""
        withheld, self._texts, self._is_useful = self._texts, [], True
        self._has_called = self._has_called or is_call
        return (*withheld, *events)

    def _end(self, stopped: Stopped) -> Sequence[ModelEvent]:
        self.usage = stopped.usage
        if self._is_useful or self.recent is None or stopped.reason in CUT:
            reason = "stop" if stopped.reason == "calls" and not self._has_called else stopped.reason
            return self._release(replace(stopped, reason=reason))
        if not self.dropped and not self._copies():
            return self._judge(stopped)
        self.flaw = self.dropped[-1] if self.dropped else "copy" if self._said() else "empty"
        return ()


def _copies(recent: RecentCalls) -> frozenset[str]:
    """Answers that say nothing, without their white space: JSON of the latest results or of a call, fenced or not, and `LINE`."""
    results = [answered.result for answered in recent.rounds[-1]]
    calls = [json.dumps({"name": answered.call.name, "arguments": answered.call.arguments}) for answered in recent.calls]
    copies = ["".join(text.split()) for text in (*results, *calls) if text.lstrip()[:1] in ("{", "[")]
    fenced = [f"```{mark}{text}```" for text in copies for mark in ("", "json")]
    lines = ["".join(text.split()) for text in (LINE, f"({LINE})", *LINE.split(". "))]
    return frozenset({*copies, *fenced, *lines})
