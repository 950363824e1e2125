"""Whether an engine enforces the grammars it is given: a server in the middle may drop a field without a word.

What an answer under a grammar should never show is looked for in every answer. Once it is seen, answers are read and validated as
those of a model that nothing constrains.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

from callsmith.core.events import CallReady, ModelEvent, Report, Stopped, Text, Unenforced, Unreadable
from callsmith.core.schema import validate
from callsmith.core.values import Request
from callsmith.models.answers.validator import UnenforcedOf, nothing_unenforced, output_complaint

logger = logging.getLogger(__name__)

WHOLE_GRAMMAR = "grammar"  # stands for the keyword where nothing at all was enforced


class Enforcement:
    """What is known of an engine: `is_known` says that it enforces grammars."""

    def __init__(self, name: str, *, is_known: bool = True) -> None:
        self._name = name
        self.is_known = is_known

    def detector(self, request: Request, unenforced: UnenforcedOf | None) -> "ViolationDetector":
        """Looks at an answer that was given under a grammar; if it breaks that, it is logged once and reported."""
        return ViolationDetector(self, request, unenforced or nothing_unenforced)

    def unenforced(self, request: Request) -> UnenforcedOf:
        """Everything of every tool and of the output: for engines that ignore grammars."""
        names = {tool.name for tool in request.tools}

        def everything(name: str) -> tuple[Unenforced, ...]:
            is_asked_for = name in names or (not name and request.output is not None)
            return (Unenforced(name, "#", WHOLE_GRAMMAR),) if is_asked_for else ()

        return everything

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
    """Looks for what a grammar rules out in one answer."""

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
                is_cut = event.reason == "length" or event.matched
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
