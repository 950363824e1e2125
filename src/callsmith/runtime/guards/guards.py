"""Guards: the safety net for small models, which call again and again, copy what they were shown, and forget to answer.

    model = guarded(model)                          # the guards this model is known to need
    model = guarded(model, ["repeats", "answers"])  # or these

A guard is a Model around a Model. It keeps nothing: the request shows all that happened since the user last spoke. What it has to
say stands in the request the model sees and never in the conversation: a hint behind the latest result or, where the model had
better not see how it got there (it would go on like that), the question anew, with all results told behind it.
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
from callsmith.runtime.guards.loop_detectors import Advice, Turn, budgets, cycles, echoes, missing, repeats

ANSWER = "Now answer the previous request in one short sentence."

Adviser: TypeAlias = Callable[[Turn], Advice | None]
ADVISERS: Mapping[str, Adviser] = {
    "repeats": repeats,
    "cycles": cycles,
    "echoes": echoes,
    "missing": missing,
    "budgets": budgets,
}


def guarded(model: Model, guards: Iterable[str] | None = None) -> Model:
    """The model with these guards; where none are named, with those it is known to need."""
    if guards is None:
        guards = model_info(model).guards
    names = [name for given in guards for name in (default_guards() if given == "small" else (given,))]
    for name in names:
        if name not in (*ADVISERS, *WRAPPERS):
            raise UnknownName("guard", name, ["small", *ADVISERS, *WRAPPERS])
    if "results-as-user" in names:
        model = ResultsAsUser(model)
    if advisers := [ADVISERS[name] for name in ADVISERS if name in names]:
        model = Advised(model, *advisers)
    return Answering(model) if "answers" in names else model


def default_guards() -> tuple[str, ...]:
    """What "small" stands for: the guards every small model can do with."""
    return (*ADVISERS, "answers")


class _Guard:
    """A model around a model, of which the same is known but that it needs no guards any more."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def info(self) -> ModelInfo:
        return replace(model_info(self._model), guards=())


class Advised(_Guard):
    """Tells the model what it seems not to see; where that does not help, takes the tools away so that it answers."""

    def __init__(self, model: Model, *advisers: Adviser) -> None:
        super().__init__(model)
        self._advisers = advisers

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        turn = Turn.of(request)
        advice = [given for adviser in self._advisers if (given := adviser(turn))] if turn.rounds else []
        hint = " ".join(dict.fromkeys(one.hint for one in advice if one.hint))
        if request.choice.mode != "auto" or not advice:
            events = self._model.stream(request)
        elif any(one.stop for one in advice) or not (left := _left(request, advice)):
            events = _without_calls(self._model, _anew(request, hint))
        else:
            asked = _anew(request, hint) if any(one.anew for one in advice) else _hinted(request, hint)
            names = () if len(left) == len(request.tools) else left
            events = self._model.stream(replace(asked, choice=Choice("auto", names)))
        async with closing(events):
            async for event in events:
                yield event


class Answering(_Guard):
    """Asks once more where the answer is nothing, or only the JSON of the latest results or of a call.

    Text is held back only as long as it may yet turn out to be such a copy.
    """

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        copies = frozenset[str]() if request.output else _copies(Turn.of(request))  # where JSON is wanted, it is an answer
        held: list[Text] = []
        said = ""  # without its white space; all of it is in `held`
        async with closing(self._model.stream(request)) as events:
            async for event in events:
                if copies and isinstance(event, Text):
                    said += _squeezed(event.text)
                    held.append(event)
                    if any(copy.startswith(said) for copy in copies):
                        continue
                if isinstance(event, Stopped) and event.reason == "stop" and said in copies:
                    spent = event.usage
                    break
                if isinstance(event, Text | CallStarted | CallReady | Unreadable | Stopped):
                    copies = frozenset[str]()  # an answer of some kind
                    for text in held:
                        if text is not event:
                            yield text
                    held = []
                yield event
            else:
                return
        again = _without_calls(self._model, _anew(request))
        async with closing(again):
            async for later in again:
                yield replace(later, usage=spent + later.usage) if isinstance(later, Stopped) else later


class ResultsAsUser(_Guard):
    """Tells results as a user would: for models whose templates know no others, or who do not heed them."""

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        messages: list[Message] = []
        for are_results, group in groupby(request.messages, lambda message: message.role == "tool"):
            same = list(group)
            told = Message.user(_results(f"{message.name} -> {message.content}" for message in same))
            messages += [told] if are_results else same
        # To the model this looks like a new request of the user's; it must not be made to call for it.
        policy = "auto" if request.messages and request.messages[-1].role == "tool" else request.policy
        async with closing(self._model.stream(replace(request, messages=tuple(messages), policy=policy))) as events:
            async for event in events:
                yield event


WRAPPERS = ("answers", "results-as-user")


async def _without_calls(model: Model, request: Request) -> AsyncIterator[ModelEvent]:
    """An answer in words. A model that calls all the same is not heard."""
    async with closing(model.stream(replace(request, choice=Choice("none")))) as events:
        async for event in events:
            if isinstance(event, Stopped) and event.reason == "calls":
                yield replace(event, reason="stop")
            elif not isinstance(event, CallStarted | CallArguments | CallReady):
                yield event


def _left(request: Request, advice: Iterable[Advice]) -> tuple[str, ...]:
    """The tools that may still be called."""
    spent = {one.spent for one in advice}
    offered = request.choice.names or tuple(tool.name for tool in request.tools)
    return tuple(name for name in offered if name not in spent)


def _hinted(request: Request, hint: str) -> Request:
    """Behind the latest result: there every template takes it, and no message of a role the model does not expect comes in."""
    *before, last = request.messages
    return replace(request, messages=(*before, replace(last, content=f"{last.content}\n({hint})")))


def _anew(request: Request, hint: str = "") -> Request:
    """The user's question with all results behind it, and nothing of the calls: a small model that sees calls writes calls."""
    at = max((place for place, message in enumerate(request.messages) if message.role == "user"), default=None)
    if at is None:
        return _hinted(request, hint or ANSWER)
    steps = {step.mark: step for step in Turn.of(request).steps}.values()
    times = Counter(step.call.name for step in steps)
    told = [f"{step.call.name}{f' {step.call.text}' * (times[step.call.name] > 1)} -> {step.result}" for step in steps]
    asked = request.messages[at]
    question = replace(asked, content=f"{asked.content}\n\n{_results(told, hint)}")
    return replace(request, messages=(*request.messages[:at], question), policy="auto")


def _results(told: Iterable[str], hint: str = "") -> str:
    return f"(system: tool results — {'; '.join(told)}. {hint and hint + ' '}{ANSWER})"


def _copies(turn: Turn) -> frozenset[str]:
    """What an answer would be that tells nothing: the JSON of the latest results or of a call made before, fenced or not, or no
    text at all.
    """
    results = [_squeezed(step.result) for step in turn.rounds[-1]] if turn.rounds else []
    calls = [_squeezed(json.dumps({"name": step.call.name, "arguments": step.call.arguments})) for step in turn.steps]
    copies = [text for text in (*results, *calls) if text[:1] in ("{", "[")]
    fenced = [f"```{mark}{text}```" for text in copies for mark in ("", "json")]
    return frozenset({"", *copies, *fenced}) if turn.rounds else frozenset()


def _squeezed(text: str) -> str:
    return "".join(text.split())
