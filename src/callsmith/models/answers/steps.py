"""How an answer came about, for whoever asks: what the model was given, and what it wrote."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Started, Stopped, Text, Thought, Unreadable
from callsmith.core.types.model_step import ModelStep
from callsmith.core.values import Usage


class StepRecorder:
    """Calls `explain` with a step of the model once: at the end of the answer, or when `close` ends it early.

    `written` is the text so far and what it has cost. Without it, the text is that of the events: what is said and thought, and
    the calls with their names before them.
    """

    def __init__(
        self, step: ModelStep, explain: Callable[[ModelStep], None], written: Callable[[], tuple[str, Usage]] | None = None
    ) -> None:
        self._step = step
        self._explain = explain
        self._written = written or self._read
        self._began = time.perf_counter()
        self._repairs: list[str] = []
        self._has_ended = False
        self._pieces: list[str] = []
        self._usage = Usage()

    def filter(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        """The events, as they are."""
        for event in events:
            match event:
                case Text(text) | Thought(text) | CallArguments(_, text):
                    self._pieces.append(text)
                case CallStarted(name=name):
                    self._pieces.append(f"\n{name} ")
                case CallReady():
                    self._repairs += event.repairs
                case Unreadable(text, reason):
                    self._pieces.append(text)
                    self._repairs.append(f"unreadable: {reason}")
                case Started(usage):
                    self._usage = usage
                case Stopped(usage=usage):
                    self._end(usage)
            yield event

    def close(self) -> None:
        """End the step, if the answer has not ended."""
        if not self._has_ended:
            self._end()

    def _read(self) -> tuple[str, Usage]:
        return "".join(self._pieces), self._usage

    def _end(self, usage: Usage | None = None) -> None:
        self._has_ended = True
        text, so_far = self._written()
        spent, seconds = usage or so_far, round(time.perf_counter() - self._began, 6)
        took = {"seconds": seconds, "prompt_tokens": spent.prompt, "tokens": spent.completion}
        self._explain(replace(self._step, text=text, repairs=tuple(self._repairs), **took))
