"""Asks a model one question and collects the whole answer, with all that is measured of it."""

import time
from dataclasses import dataclass, field, replace

from callsmith.core.closing import closing
from callsmith.core.events import CallReady, Report, Stopped, Text, Unreadable
from callsmith.core.ports import Model
from callsmith.core.types.model_step import ModelStep
from callsmith.core.values import Call, Message, Request, Usage


@dataclass(slots=True)
class CaseAnswer:
    """An answer. `steps` are what the model was given and wrote: more than one where something was asked for again. `rounds` is
    how many answers these are together."""

    text: str = ""
    calls: list[Call] = field(default_factory=list[Call])
    repairs: list[str] = field(default_factory=list[str])
    steps: list[ModelStep] = field(default_factory=list[ModelStep])
    usage: Usage = Usage()
    finish: str = ""
    report: Report = field(default_factory=Report)
    seconds: float = 0.0
    rounds: int = 1

    @property
    def message(self) -> Message:
        """The answer as a message of the conversation."""
        return Message.assistant(self.text, calls=self.calls)

    @property
    def written(self) -> str:
        """What the model wrote, in its own spelling; without what was asked for again."""
        return self.steps[0].text if self.steps else self.text

    def add(self, other: "CaseAnswer") -> None:
        """Go on with another answer of the same conversation."""
        self.text = f"{self.text}\n\n{other.written}" if self.rounds else other.written
        self.steps, self.finish, self.rounds = [], other.finish, self.rounds + 1
        self.calls += other.calls
        self.repairs += other.repairs
        self.usage += other.usage
        self.report += other.report
        self.seconds += other.seconds


async def ask(model: Model, request: Request) -> CaseAnswer:
    """The whole answer to a request."""
    answer, texts, began = CaseAnswer(), list[str](), time.perf_counter()
    request = replace(request, explain=answer.steps.append)
    async with closing(model.stream(request)) as events:
        async for event in events:
            match event:
                case Text(text):
                    texts.append(text)
                case CallReady(_, call, repairs):
                    answer.calls.append(call)
                    answer.repairs += repairs
                case Unreadable(reason=reason):
                    answer.repairs.append(f"unreadable: {reason}")
                case Stopped():
                    answer.finish, answer.usage, answer.report = event.reason, event.usage, event.report
                case _:
                    pass
    answer.text, answer.seconds = "".join(texts), time.perf_counter() - began
    return answer
