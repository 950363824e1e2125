"""Guards for small models, which repeat calls, copy their prompt instead of answering, or answer nothing.

    model = guard_model(model)                          # the guards this model is known to need
    model = guard_model(model, ["repeats", "answers"])  # or these

A guard is a Model around a Model; plug-in guards (`guard.py`) stand next to the model. It has no state: the request
shows all calls since the last message of the user. A hint is only in the request the model sees, never in the conversation:
behind the latest result or, where the model would repeat the calls it sees, behind the user's question, with all results listed
and the calls left out.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

from callsmith.core.closing import closing
from callsmith.core.errors import UnknownName
from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Stopped
from callsmith.core.ports import Model, model_info
from callsmith.core.values import Choice, Message, Request
from callsmith.runtime.guards.answers import AnswerGuard, list_results, question_with_results, with_line
from callsmith.runtime.guards.guard import Guard, GuardFactory, installed_guards, is_plugin_guard, load_plugin_guard
from callsmith.runtime.guards.loop_detectors import Advice, RecentCalls, budgets, cycles, echoes, missing, repeats

Detector: TypeAlias = Callable[[RecentCalls], Advice | None]


class LoopGuard(Guard):
    """Gives the model the detectors' hints; where those do not help, takes its tools away so that it answers."""

    def __init__(self, model: Model, *detectors: Detector) -> None:
        super().__init__(model)
        self._detectors = detectors

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        recent = RecentCalls.of(request)
        advice = [item for detector in self._detectors if (item := detector(recent))] if recent.rounds else []
        if request.choice.mode != "auto" or not advice:
            return self._model.stream(request)
        hint = " ".join(dict.fromkeys(item.hint for item in advice if item.hint))
        if any(item.stop for item in advice) or not (callable_tools := _callable_tools(request, advice)):
            return _without_calls(self._model, question_with_results(request, hint))
        hides_calls = any(item.hide_calls for item in advice)
        changed = question_with_results(request, hint) if hides_calls else with_line(request, f"({hint})")
        names = () if len(callable_tools) == len(request.tools) else callable_tools
        return self._model.stream(replace(changed, choice=Choice("auto", names)))


class ResultsAsUser(Guard):
    """Shows results as messages of the user: for models whose templates have no results, or that ignore them."""

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        messages: list[Message] = []
        for are_results, group in groupby(request.messages, lambda message: message.role == "tool"):
            same = list(group)
            results = Message.user(list_results(f"{message.name} -> {message.content}" for message in same))
            messages += [results] if are_results else same
        # To the model this looks like a new request of the user's; it must not be made to call for it.
        policy = "auto" if request.messages and request.messages[-1].role == "tool" else request.policy
        return self._model.stream(replace(request, messages=tuple(messages), policy=policy))


async def _without_calls(model: Model, request: Request) -> AsyncIterator[ModelEvent]:
    """The model's answer without calls; calls it makes nevertheless are dropped."""
    async with closing(model.stream(replace(request, choice=Choice("none")))) as events:
        async for event in events:
            if isinstance(event, Stopped) and event.reason == "calls":
                yield replace(event, reason="stop")
            elif not isinstance(event, CallStarted | CallArguments | CallReady):
                yield event


def _callable_tools(request: Request, advice: Iterable[Advice]) -> tuple[str, ...]:
    spent = {item.exhausted_tool for item in advice}
    offered = request.choice.names or tuple(tool.name for tool in request.tools)
    return tuple(name for name in offered if name not in spent)


@dataclass(frozen=True, slots=True)
class BuiltinGuard:
    """A guard that comes with callsmith: a detector for the LoopGuard, or a wrapper of its own.

    One that has neither is looked for by name elsewhere. `is_default`: it is one of those that "small" stands for.
    """

    detector: Detector | None = None
    wrapper: GuardFactory | None = None
    is_default: bool = True


# In the order in which they stand around the model, the innermost first.
GUARDS: Mapping[str, BuiltinGuard] = {
    "results-as-user": BuiltinGuard(wrapper=ResultsAsUser, is_default=False),
    "repeats": BuiltinGuard(repeats),
    "cycles": BuiltinGuard(cycles),
    "echoes": BuiltinGuard(echoes),
    "missing": BuiltinGuard(missing),
    "budgets": BuiltinGuard(budgets),
    "answers": BuiltinGuard(wrapper=AnswerGuard),
    "search-first": BuiltinGuard(),  # of `runtime.discovery`
}


def guard_model(model: Model, guards: Iterable[str] | None = None) -> Model:
    """The model with these guards; without names, with the guards it is known to need."""
    names = guard_names(model, guards)
    needs_some = bool(model_info(model).guards)
    for name in filter(is_plugin_guard, names):
        model = load_plugin_guard(name)(model)
    chosen = (guard for name, guard in GUARDS.items() if name in names)
    for detects, group in groupby(chosen, lambda guard: guard.detector is not None):
        if detects:
            model = LoopGuard(model, *(guard.detector for guard in group if guard.detector))
        else:
            for guard in group:
                model = guard.wrapper(model) if guard.wrapper else model
    return model if names or not needs_some else Guard(model)


def guard_names(model: Model, guards: Iterable[str] | None = None) -> tuple[str, ...]:
    """The names of these guards, those that "small" stands for included; without names, of the guards the model needs."""
    chosen = model_info(model).guards if guards is None else guards
    names = tuple(name for guard in chosen for name in (default_guards() if guard == "small" else (guard,)))
    for name in names:
        if name not in GUARDS and not is_plugin_guard(name):
            raise UnknownName("guard", name, ["small", *GUARDS, *installed_guards()])
    return names


def default_guards() -> tuple[str, ...]:
    """The guards that "small" stands for: those every small model needs."""
    return tuple(name for name, guard in GUARDS.items() if guard.is_default)
