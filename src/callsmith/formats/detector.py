"""Detectors: code that finds the calls in an answer, for what no format can describe.

    class Shouting(BaseFormatDetector):
        def detect(self, text, tools):
            found = re.search(r"CALL (\\w+) WITH (\\{.*\\})", text)
            return ([Call(found[1], json.loads(found[2]))], text[: found.start()]) if found else ([], text)

    register_detector("shouting", Shouting)

It is asked where the format itself has found no call, once the answer is complete: of such an answer nothing is streamed before.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Text, Thought, Unreadable
from callsmith.core.values import Call, Tool


class BaseFormatDetector(ABC):
    """Finds calls in text. One is made for each answer that it is asked about."""

    @abstractmethod
    def detect(self, text: str, tools: Sequence[Tool]) -> tuple[Sequence[Call], str]:
        """The calls in an answer, and what is left of its text; no calls: it is not written as this detector expects."""


def run_detectors(
    detectors: Iterable[type[BaseFormatDetector]], events: Sequence[ModelEvent], tools: Iterable[Tool]
) -> list[ModelEvent]:
    """The events of an answer without calls, or with those that the first detector to find any finds in its text."""
    text = "".join(event.text for event in events if isinstance(event, Text))
    known = tuple(tools)
    for detector in detectors:
        try:
            calls, rest = detector().detect(text, known)
        except Exception as error:  # other people's code
            return [*events, Unreadable("", f"{detector.__name__} failed: {error}")]
        if calls:
            thoughts = [event for event in events if isinstance(event, Thought)]
            return [*thoughts, *([Text(rest)] if rest else ()), *events_of((call, ()) for call in calls)]
    return list(events)


def events_of(calls: Iterable[tuple[Call, tuple[str, ...]]]) -> list[ModelEvent]:
    """The events of calls that are known as a whole, each with the repairs it needed."""
    return [
        event
        for index, (call, repairs) in enumerate(calls)
        for event in (CallStarted(index, call.name, call.id), CallArguments(index, call.text), CallReady(index, call, repairs))
    ]
