"""Guards for small models, which repeat calls, copy their prompt instead of answering, or answer nothing.

    model = guarded(model)                          # the guards this model is known to need
    model = guarded(model, ["repeats", "answers"])  # or these

A guard is a Model around a Model. It has no state: the request shows all calls since the last message of the user. A hint stands
only in the request the model sees, never in the conversation: behind the latest result or, where the model would repeat the calls
it sees, behind the user's question, with all results listed and the calls left out.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias

from callsmith.core.closing import closing
from callsmith.core.errors import UnknownName
from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Stopped, Text, Unreadable
from callsmith.core.ports import Model, ModelInfo, model_info
from callsmith.core.values import Choice, Message, Request
from callsmith.runtime.guards.loop_detectors import Advice, RecentCalls, budgets, cycles, echoes, missing, repeats

ANSWER = "Now answer the previous request in one short sentence."

Detector: TypeAlias = Callable[[RecentCalls], Advice | None]
DETECTORS: Mapping[str, Detector] = {
    "repeats": repeats,
    "cycles": cycles,
    "echoes": echoes,
    "missing": missing,
    "budgets": budgets,
}


def guarded(model: Model, guards: Iterable[str] | None = None) -> Model:
    """The model with these guards; without names, with the guards it is known to need."""
    if guards is None:
        guards = model_info(model).guards
    names = [name for given in guards for name in (default_guards() if given == "small" else (given,))]
    for name in names:
        if name not in (*DETECTORS, *WRAPPERS):
            raise UnknownName("guard", name, ["small", *DETECTORS, *WRAPPERS])
    if "results-as-user" in names:
        model = ResultsAsUser(model)
    if detectors := [DETECTORS[name] for name in DETECTORS if name in names]:
        model = LoopGuard(model, *detectors)
    return AnswerGuard(model) if "answers" in names else model


def default_guards() -> tuple[str, ...]:
    """The guards that "small" stands for: those every small model needs."""
    return (*DETECTORS, "answers")


class _Guard:
    """A model around a model, of which the same is known but that it needs no guards any more."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def info(self) -> ModelInfo:
        return replace(model_info(self._model), guards=())


class LoopGuard(_Guard):
    """Gives the model the detectors' hints; where those do not help, takes its tools away so that it answers."""

    def __init__(self, model: Model, *detectors: Detector) -> None:
        super().__init__(model)
        self._detectors = detectors

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        recent = RecentCalls.of(request)
        advice = [given for detector in self._detectors if (given := detector(recent))] if recent.rounds else []
        hint = " ".join(dict.fromkeys(one.hint for one in advice if one.hint))
        if request.choice.mode != "auto" or not advice:
            events = self._model.stream(request)
        elif any(one.stop for one in advice) or not (left := _callable_tools(request, advice)):
            events = _without_calls(self._model, _question_with_results(request, hint))
        else:
            asked = _question_with_results(request, hint) if any(one.hide_calls for one in advice) else _with_hint(request, hint)
            names = () if len(left) == len(request.tools) else left
            events = self._model.stream(replace(asked, choice=Choice("auto", names)))
        async with closing(events):
            async for event in events:
                yield event


class AnswerGuard(_Guard):
    """Asks once more where the answer is empty, or only the JSON of the latest results or of a call.

    Text is buffered only as long as it can still turn out to be such a copy.
    """

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        copies = frozenset[str]() if request.output else _copies(RecentCalls.of(request))  # where JSON is wanted, it is an answer
        buffered: list[Text] = []
        said = ""  # without its white space; all of it is in `buffered`
        async with closing(self._model.stream(request)) as events:
            async for event in events:
                if copies and isinstance(event, Text):
                    said += _without_spaces(event.text)
                    buffered.append(event)
                    if any(copy.startswith(said) for copy in copies):
                        continue
                if isinstance(event, Stopped) and event.reason == "stop" and said in copies:
                    spent = event.usage
                    break
                if isinstance(event, Text | CallStarted | CallReady | Unreadable | Stopped):
                    copies = frozenset[str]()  # an answer of some kind
                    for text in buffered:
                        if text is not event:
                            yield text
                    buffered = []
                yield event
            else:
                return
        again = _without_calls(self._model, _question_with_results(request))
        async with closing(again):
            async for later in again:
                yield replace(later, usage=spent + later.usage) if isinstance(later, Stopped) else later


class ResultsAsUser(_Guard):
    """Shows results as messages of the user: for models whose templates have no results, or that ignore them."""

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        messages: list[Message] = []
        for are_results, group in groupby(request.messages, lambda message: message.role == "tool"):
            same = list(group)
            as_user = Message.user(_results(f"{message.name} -> {message.content}" for message in same))
            messages += [as_user] if are_results else same
        # To the model this looks like a new request of the user's; it must not be made to call for it.
        policy = "auto" if request.messages and request.messages[-1].role == "tool" else request.policy
        async with closing(self._model.stream(replace(request, messages=tuple(messages), policy=policy))) as events:
            async for event in events:
                yield event


WRAPPERS = ("answers", "results-as-user")


async def _without_calls(model: Model, request: Request) -> AsyncIterator[ModelEvent]:
    """The model's answer without calls; calls it makes nevertheless are dropped."""
    async with closing(model.stream(replace(request, choice=Choice("none")))) as events:
        async for event in events:
            if isinstance(event, Stopped) and event.reason == "calls":
                yield replace(event, reason="stop")
            elif not isinstance(event, CallStarted | CallArguments | CallReady):
                yield event


def _callable_tools(request: Request, advice: Iterable[Advice]) -> tuple[str, ...]:
    """The tools that may still be called."""
    spent = {one.exhausted_tool for one in advice}
    offered = request.choice.names or tuple(tool.name for tool in request.tools)
    return tuple(name for name in offered if name not in spent)


def _with_hint(request: Request, hint: str) -> Request:
    """The request with a hint behind the latest result: every template renders it there, and no unexpected role is needed."""
    *before, last = request.messages
    return replace(request, messages=(*before, replace(last, content=f"{last.content}\n({hint})")))


def _question_with_results(request: Request, hint: str = "") -> Request:
    """The user's question with all results behind it and without the calls: a small model that sees calls writes calls."""
    at = max((place for place, message in enumerate(request.messages) if message.role == "user"), default=None)
    if at is None:
        return _with_hint(request, hint or ANSWER)
    steps = {step.fingerprint: step for step in RecentCalls.of(request).calls}.values()
    times = Counter(step.call.name for step in steps)
    results = [f"{step.call.name}{f' {step.call.text}' * (times[step.call.name] > 1)} -> {step.result}" for step in steps]
    asked = request.messages[at]
    question = replace(asked, content=f"{asked.content}\n\n{_results(results, hint)}")
    return replace(request, messages=(*request.messages[:at], question), policy="auto")


def _results(results: Iterable[str], hint: str = "") -> str:
    return f"(system: tool results — {'; '.join(results)}. {hint and hint + ' '}{ANSWER})"


def _copies(recent: RecentCalls) -> frozenset[str]:
    """The answers that say nothing: the JSON of the latest results or of an earlier call, fenced or not, and the empty text."""
    results = [_without_spaces(step.result) for step in recent.rounds[-1]] if recent.rounds else []
    calls = [_without_spaces(json.dumps({"name": step.call.name, "arguments": step.call.arguments})) for step in recent.calls]
    copies = [text for text in (*results, *calls) if text[:1] in ("{", "[")]
    fenced = [f"```{mark}{text}```" for text in copies for mark in ("", "json")]
    return frozenset({"", *copies, *fenced}) if recent.rounds else frozenset()


def _without_spaces(text: str) -> str:
    return "".join(text.split())
