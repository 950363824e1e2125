"""Events: what happens while a model answers (ModelEvent) and while tools run (RunEvent)."""

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from callsmith.core.errors import ModelError
from callsmith.core.types.field_checks import check_fields
from callsmith.core.types.model_step import CallDecision, ModelStep
from callsmith.core.values import Call, Message, Output, Result, TokenLogprob, Tool, Usage

# "filtered": the server behind has withheld the rest, or declined to answer; "calls": the caller has calls to run;
# "confirmation": some wait for a person's decision; "limit": a limit of the run.
StopReason: TypeAlias = Literal["stop", "length", "filtered", "calls", "confirmation", "limit"]
CUT: Final[tuple[StopReason, ...]] = ("length", "filtered")  # an answer that ends so may have more to it


@dataclass(frozen=True, slots=True)
class Started:
    """The model has read the prompt and begins to answer; `usage` is what the prompt cost. At most once, before the answer.

    `decision` is whether it calls tools, where that was decided beforehand.
    """

    usage: Usage
    decision: CallDecision | None = None


@check_fields
@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer the user sees; with the log probabilities of its tokens, where they were asked for."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@check_fields
@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of the model's reasoning."""

    text: str


@check_fields
@dataclass(frozen=True, slots=True)
class CallStarted:
    """The model has begun a call and named the tool. Calls of one answer are numbered from 0."""

    index: int
    name: str
    id: str = ""


@check_fields
@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of that call's arguments, as JSON text. The pieces concatenate to `CallReady.call.text`."""

    index: int
    text: str


@check_fields
@dataclass(frozen=True, slots=True)
class CallReady:
    """The call is complete. `repairs` names each repair that was needed to read it."""

    index: int
    call: Call
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Text that began like a call but could not be read as one, with the reason. `index` is given if a call had started."""

    text: str
    reason: str
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Unenforced:
    """A schema keyword that no grammar enforced and that was validated afterwards. `tool` is empty for the output's schema."""

    tool: str
    path: str
    keyword: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was done for an answer: what was validated only afterwards, how many retries that took, and what a guard took back.

    `notices` are what a person should know: what was asked for and could not be had. `steps` are what the model was given and
    what it wrote, where a server was asked to explain the answer. `decision` is whether tools were called, where that was decided
    before the answer was written; of an answer in several steps, the first one.
    """

    unenforced: tuple[Unenforced, ...] = ()
    retries: int = 0
    taken_back: tuple[str, ...] = ()  # "repeated_call", "copy", "empty", "refusal", "unknown_number", "call", "unfounded_call", …
    notices: tuple[str, ...] = ()
    steps: tuple[ModelStep, ...] = ()
    decision: CallDecision | None = None

    def __add__(self, other: "Report") -> "Report":
        return Report(
            tuple(dict.fromkeys(self.unenforced + other.unenforced)),
            self.retries + other.retries,
            self.taken_back + other.taken_back,
            tuple(dict.fromkeys(self.notices + other.notices)),
            self.steps + other.steps,
            self.decision or other.decision,
        )


@dataclass(frozen=True, slots=True)
class Stopped:
    """The answer has ended. Always the last event, exactly once. `matched` is the stop string that ended it, where one did."""

    reason: StopReason
    usage: Usage = Usage()
    report: Report = Report()
    matched: str = ""


ModelEvent: TypeAlias = Started | Text | Thought | CallStarted | CallArguments | CallReady | Unreadable | Stopped


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool begins to run."""

    call: Call


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """A running tool reports its progress; `waits`: it waits for us, or for a person, and its time does not count meanwhile."""

    call_id: str
    text: str = ""
    current: float | None = None
    total: float | None = None
    waits: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool has returned its result; every call gets exactly one."""

    result: Result


@dataclass(frozen=True, slots=True)
class ConfirmationNeeded:
    """A call that needs a person's approval: it has not run. `id` names the question; a journal keeps it while the call waits.

    The turn then ends; it continues when the conversation is run again with a decision on `call.id` in the context. `tool` is
    the definition that the person is asked about: the decision counts for no other.
    """

    id: str
    call: Call
    reason: str = ""
    expires: float | None = None  # seconds since the epoch; an approval after that is too late
    tool: Tool | None = None


@dataclass(frozen=True, slots=True)
class CallDeferred:
    """A call that whoever asked runs itself. It has no result yet; the turn ends, and goes on when the result is there."""

    call: Call


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know: a limit was reached, a tool was ignored."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The run is over. `messages` is what it added to the conversation, `usage` the sum over all its steps.

    `text` is the model's answer, `value` the same as the request's `output` wants it: `Output(Person)` gives a `Person`.
    """

    messages: tuple[Message, ...]
    reason: StopReason
    usage: Usage = Usage()
    output: Output | None = None

    @property
    def text(self) -> str:
        """The last thing the model said; empty if it has only called tools."""
        return next((message.content for message in reversed(self.messages) if message.role == "assistant"), "")

    @property
    def value(self) -> Any:
        """The answer parsed as the output says; a ModelError if it does not fit, or if the run ended before it was complete."""
        return answer_value(self.output, self.text, self.reason)


def answer_value(output: Output | None, text: str, reason: StopReason) -> Any:
    """The value of an answer under the output that was asked for; the text itself where none was."""
    if output is None:
        return text
    if reason != "stop":
        raise ModelError(f"there is no complete answer: the run ended with {reason!r}")
    return output.parse(text)


# What a toolset reports of a call: progress, then exactly one of the others.
CallEvent: TypeAlias = ToolProgress | ConfirmationNeeded | CallDeferred | Result
ToolEvent: TypeAlias = ToolStarted | ToolProgress | ToolFinished | ConfirmationNeeded | CallDeferred | Notice
RunEvent: TypeAlias = ModelEvent | ToolEvent | TurnEnded
