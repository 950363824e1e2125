"""What the model was given and what it wrote, gathered while an answer is made that is to be explained."""

from collections.abc import AsyncIterator
from dataclasses import replace

from callsmith.core.closing import closing
from callsmith.core.events import Stopped
from callsmith.core.types.cut_text import cut_text
from callsmith.core.types.model_step import ModelStep
from callsmith.server.tools.one_answer import AnswerEvent

_MOST_IN_ONE = 200_000  # characters of a prompt, a grammar or a text
_MOST = 2_000_000  # of all of them together
_LEAST = 200  # that are shown of each, whatever came before
_MOST_STEPS = 64


class StepLog:
    """Gathers the steps of an answer. Long texts are cut, and of very many steps the first ones are shown."""

    def __init__(self) -> None:
        self.steps: list[ModelStep] = []
        self._left = _MOST

    def add(self, step: ModelStep) -> None:
        if len(self.steps) < _MOST_STEPS:
            self.steps.append(
                replace(step, prompt=self._cut(step.prompt), text=self._cut(step.text), grammar=self._cut(step.grammar))
            )

    async def attach_steps(self, answer: AsyncIterator[AnswerEvent]) -> AsyncIterator[AnswerEvent]:
        """The answer, with the steps in its report."""
        async with closing(answer) as events:
            async for event in events:
                if isinstance(event, Stopped):
                    event = replace(event, report=replace(event.report, steps=tuple(self.steps)))
                yield event

    def _cut(self, text: str) -> str:
        shown = cut_text(text, max(_LEAST, min(_MOST_IN_ONE, self._left)))
        self._left -= len(shown)
        return shown
