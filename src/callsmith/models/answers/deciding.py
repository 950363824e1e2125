"""Whether an answer calls tools: decided by what the model would write first, before it writes anything, and then held.

A small model that is asked whether it wants to call something does not know; what it would begin to write does tell. So where a
request leaves the choice to the model, it is asked for one token, and the log odds that this begins a call are compared with a
threshold that was measured for these weights. From there on the choice is not open any more: calls are required, or there are
none, and the prompt for that has no word about how to call.

After results, the calls that were made are put at the beginning of the answer again: whether the model would go on with another
one, and of which tool, is in what comes next. Its arguments are then asked for with the results in view, for what was written
before they were there is made up. The history is all that is needed for this, whoever runs the calls.
"""

import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from callsmith.core.choice import FIND_TOOLS, JOB_RESULT
from callsmith.core.closing import closing
from callsmith.core.errors import UnsupportedSchema
from callsmith.core.events import CallReady, CallStarted, ModelEvent, Report, Started, Stopped, Text
from callsmith.core.failures import is_failure
from callsmith.core.types.model_step import CallDecision
from callsmith.core.values import Call, Choice, Message, Output, Request, Sampling, Tool, Usage
from callsmith.engines.port import Engine, Finished
from callsmith.formats.algebra import Calls, Format
from callsmith.formats.prompt.prompt import Prompt
from callsmith.formats.prompt.tool_prompt import ToolPrompt
from callsmith.formats.reader.reader import Reader
from callsmith.formats.write import literal_text, write
from callsmith.models.answers.grounding import REFUSED, CallJudge, is_same, refuses_calls
from callsmith.models.grammars import AnswerGrammar, Grammars

TAKEN_BACK: Final = "unfounded_call"  # its arguments occur nowhere
_SURE: Final = 3.0  # above the threshold: the model wants to call, and only lacks something
_LIKELIEST: Final = 20  # tokens that are looked at; what is not among them is too unlikely to matter
_LEAST: Final = 1e-9
_FINAL: Final = ("denied", "expired", "limit_reached", "interrupted")  # failures after which the same is not tried again
_MOST_CALLS: Final = 12  # in one turn: a model that goes on calling is made to answer


PromptOf: TypeAlias = Callable[[Request], Awaitable[Prompt]]
INVENTED: Final = "invented_call"
_BEGINNING: Final = re.compile(r"\s*+(?:```\w*+\s*+|<\w++>\s*+)?+\[?\s*+\{\s*+\"(?:name|function|tool|tool_name)\"\s*:")
_MAY_BEGIN: Final = re.compile(r"\s*+(?:`{1,3}\w*+\s*+|<\w*+>?\s*+)?+\[?\s*+(?:\{\s*+(?:\"[a-z_]{0,9}\"?\s*+)?+)?+")
MISSING: Final = (
    "(Something that is needed for this was not said. Ask the user for it in one short question, and do not say that it is done.)"
)
WITHOUT_TOOLS: Final = (
    "(This needs a tool, and none may be used. Say in one short sentence that you cannot know or do it without one. "
    "Make nothing up.)"
)
_WANTED: Final = 0.5  # above the threshold: to answer without tools would be to make it up


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """A request, ready to be generated. `output` is the structured output, where text may be written at all; `decision` is why
    calls are required, or there are none. `lenient`: the grammar holds only those tools that a grammar can hold."""

    request: Request
    tools: tuple[Tool, ...]
    output: Output | None
    prompt: Prompt
    grammar: AnswerGrammar
    decision: CallDecision | None = None
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class Decided:
    """A request that leaves no choice any more, and what it took to get there."""

    request: Request
    decision: CallDecision
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class _Turn:
    """What has happened since the user spoke last. `asked` are the messages up to that."""

    asked: tuple[Message, ...]
    calls: tuple[Call, ...]
    has_failed: bool

    @property
    def question(self) -> str:
        """What the user said last."""
        return next((message.content for message in reversed(self.asked) if message.role == "user"), "")

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "_Turn":
        roles = [message.role for message in messages]
        begins = len(roles) - roles[::-1].index("user") if "user" in roles else len(roles)
        since = messages[begins:]
        answers = {message.call_id: message.content for message in since if message.role == "tool"}
        calls = [call for message in since for call in message.calls if call.id in answers]
        latest = [call for message in since[-1:] if message.role == "tool" for call in calls if call.id == message.call_id]
        failed = any(is_failure(answers[call.id]) and not answers[call.id].startswith(_FINAL) for call in latest)
        own_calls = tuple(call for call in calls if call.name not in (FIND_TOOLS, JOB_RESULT))
        return cls(tuple(messages[:begins]), own_calls, failed)


class Decider:
    """Decides for one model. `prompt_of` makes the prompt of a request."""

    def __init__(self, engine: Engine, format: Format, tool_prompt: ToolPrompt, prompt_of: PromptOf) -> None:
        self._engine = engine
        self._tool_prompt = tool_prompt
        self._threshold = tool_prompt.threshold or 0.0
        self._prompt_of = prompt_of
        part = format.calls
        self._format = format
        self._next = replace(format, parts=(Calls(*part.item, between=part.between, close=part.close, values=part.values),))
        self._grammars = Grammars(self._next, relays=engine.info.relays)
        between, close = part.between, literal_text(part.close)
        shared = next(size for size in range(len(between) + 1) if between[size : size + 1] != close[size : size + 1])
        # White space is the model's own: one that likes its JSON on several lines writes ",\n".
        self._shared, self._goes_on, self._ends = close[:shared], between[shared:].strip()[:1], close[shared:].strip()[:1]

    async def decide(self, request: Request, *, is_exact: bool) -> Decided:
        """The request with its choice made. `is_exact`: where there is something right to be said, in calls and from results, the
        likeliest tokens are taken instead of drawn ones."""
        decided = await self._decide(request)
        if not is_exact or not (decided.decision.calls or request.messages[-1].role == "tool"):
            return decided
        return replace(decided, request=replace(decided.request, sampling=replace(request.sampling, temperature=0.0)))

    async def _decide(self, request: Request) -> Decided:
        turn = _Turn.of(request.messages)
        if turn.calls and not turn.has_failed:
            return await self._after_results(request, turn)
        threshold = self._threshold - (request.call_bias or 0.0)
        odds, usage = await self._first_tokens(await self._prompt_of(request))
        chance = min(max(odds.of(self._tool_prompt.opening), _LEAST), 1 - _LEAST)
        score = math.log(chance / (1 - chance))
        if refuses_calls(turn.question):
            if score > threshold + _WANTED and request.messages[-1].role == "user":
                request = ask_for_words(request, WITHOUT_TOOLS)
            score -= REFUSED
        decision = CallDecision(score >= threshold and len(turn.calls) < _MOST_CALLS, score, threshold)
        return self._fix_choice(request, decision, usage)

    def _fix_choice(self, request: Request, decision: CallDecision, usage: Usage, name: str = "") -> Decided:
        if not decision.calls:
            return Decided(replace(request, choice=Choice("none")), decision, usage)
        if name:
            return Decided(replace(request, choice=Choice.only(name), parallel=False), decision, usage)
        return Decided(replace(request, choice=Choice("required", request.choice.names)), decision, usage)

    async def _after_results(self, request: Request, turn: _Turn) -> Decided:
        """Whether the calls that were made are all that the model would have made."""
        threshold, text = self._tool_prompt.more, write(self._format, turn.calls)
        begun = text[: len(text) - len(literal_text(self._format.calls.close))]  # the calls, without what ends them
        odds, usage = await self._first_tokens(await self._begin_answer(request, turn, begun + self._shared))
        ends = odds.beginning_with(self._ends)
        goes_on = odds.beginning_with(self._goes_on) if self._goes_on else 1 - ends
        score = math.log(max(goes_on, _LEAST) / max(ends, _LEAST))
        if score < threshold or len(turn.calls) >= _MOST_CALLS:
            return self._fix_choice(request, CallDecision(False, score, threshold), usage)
        name = await self._next_name(request, turn, begun)
        return self._fix_choice(request, CallDecision(bool(name), score, threshold), usage, name)

    async def _begin_answer(self, request: Request, turn: _Turn, answer: str) -> Prompt:
        """The prompt of the question, with an answer that has begun."""
        messages = (*turn.asked, Message.assistant(answer))
        return await self._prompt_of(replace(request, messages=messages, prefill=True))

    async def _next_name(self, request: Request, turn: _Turn, begun: str) -> str:
        """The tool that the model would call next; empty if there is none that it has not called so already."""
        begun_prompt = await self._begin_answer(request, turn, begun + self._format.calls.between)
        prompt = replace(begun_prompt, prefilled=(), opened="")  # the grammar begins behind all of it
        called = {call.name for call in turn.calls}
        tools = request.choice.among(request.tools)
        # That another call follows is surer than which one: where it would only repeat itself, it is held to the other tools.
        for offered in (tools, tuple(tool for tool in tools if tool.name not in called)):
            if offered and (name := await self._name_next(request, prompt, offered, turn.calls)):
                return name
        return ""

    async def _name_next(self, request: Request, prompt: Prompt, tools: tuple[Tool, ...], calls: Sequence[Call]) -> str:
        """The tool of the next call; empty if that is one of these calls."""
        try:
            grammar = self._grammars.get(tools, Choice("required"), parallel=False)
        except UnsupportedSchema:  # no grammar can hold these tools: what was called is enough
            return ""
        sampling = Sampling(temperature=0.0, max_tokens=request.sampling.max_tokens)
        reader, called = Reader(self._next, tools, is_constrained=True), {call.name for call in calls}
        async with closing(self._engine.generate(prompt, sampling, grammar)) as pieces:
            async for piece in pieces:
                for event in reader.close() if isinstance(piece, Finished) else reader.feed(piece.text):
                    if isinstance(event, CallStarted) and event.name not in called:
                        return event.name
                    if isinstance(event, CallReady):
                        return "" if any(is_same(event.call, call) for call in calls) else event.call.name
        return ""

    async def _first_tokens(self, prompt: Prompt) -> "tuple[_Likely, Usage]":
        """What the model would write first."""
        sampling = Sampling(temperature=0.0, max_tokens=1, logprobs=_LIKELIEST)
        likely, usage = _Likely(()), Usage()
        async with closing(self._engine.generate(prompt, sampling)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Finished):
                    usage = piece.usage
                elif piece.tokens:
                    first = piece.tokens[0].logprob
                    likely = _Likely(tuple((token.text, math.exp(token.logprob)) for token in first.top))
        return likely, usage


@dataclass(frozen=True, slots=True)
class _Likely:
    """The likeliest tokens, each with its probability."""

    tokens: tuple[tuple[str, float], ...]

    def of(self, text: str) -> float:
        """How likely it is that this text, or a beginning of it, comes first."""
        return sum(chance for token, chance in self.tokens if token and (text.startswith(token) or token.startswith(text)))

    def beginning_with(self, mark: str) -> float:
        """How likely it is that a token comes first that begins with this mark, white space aside."""
        return sum(chance for token, chance in self.tokens if token.lstrip().startswith(mark))


def add_decision(event: ModelEvent, decision: CallDecision, spent: Usage, taken_back: tuple[str, ...] = ()) -> ModelEvent:
    """The event, with the decision, what it has cost and what was taken back for it, where an event tells such things."""
    match event:
        case Started(usage):
            return Started(spent + usage, decision)
        case Stopped():
            report = Report(taken_back=taken_back) + event.report + Report(decision=decision)
            return replace(event, usage=spent + event.usage, report=report)
        case _:
            return event


def report_decision(decision: CallDecision | None, judge: CallJudge | None, *, is_cut: bool) -> Report:
    """The report of an answer with calls: its decision counts what spoke against the first one; `is_cut`: it was not made."""
    if decision is None or judge is None or not decision.calls:
        return Report()
    judged = replace(decision, calls=not is_cut, score=decision.score - judge.doubt)
    return Report(taken_back=(TAKEN_BACK,) if is_cut else (), decision=judged)


def margin(request: Request, decision: CallDecision | None) -> float | None:
    """How far the score for calling is above the threshold; None: calls were asked for. After results they belong to a plan."""
    if decision is None:
        return None
    return math.inf if request.messages[-1].role == "tool" else decision.score - decision.threshold


def make_judge(plan: AnswerPlan, tool_prompt: ToolPrompt) -> CallJudge | None:
    """Who judges the calls of an answer; None where the model is asked in its template's own way, or sees images."""
    if tool_prompt.is_template or plan.prompt.images:
        return None
    turn = _Turn.of(plan.request.messages)
    return CallJudge(
        plan.tools,
        plan.request.messages,
        margin(plan.request, plan.decision),
        earlier=() if turn.has_failed or plan.decision is None else turn.calls,
    )


async def take_back_invented_calls(
    events: AsyncGenerator[ModelEvent, None], again: Callable[[], AsyncGenerator[ModelEvent, None]]
) -> AsyncGenerator[ModelEvent, None]:
    """The answer; if it begins like a call, which nobody would make, it is taken back, and that of `again` comes instead."""
    withheld: list[Text] = []
    is_free = False
    async with closing(events):
        async for event in events:
            if is_free or not isinstance(event, Text | Stopped):
                yield event
                continue
            if isinstance(event, Text):
                withheld.append(event)
            text = "".join([text_event.text for text_event in withheld])
            if _BEGINNING.match(text):
                break
            if isinstance(event, Stopped) or not _MAY_BEGIN.fullmatch(text):
                is_free = True
                for text_event in withheld:
                    yield text_event
                if isinstance(event, Stopped):
                    yield event
        else:
            return
    async with closing(again()) as second:
        async for event in second:
            if isinstance(event, Stopped):
                yield replace(event, report=event.report + Report(taken_back=(INVENTED,)))
            elif not isinstance(event, Started):
                yield event


def ask_instead(request: Request, decision: CallDecision) -> Request:
    """The request, to be answered in words in place of a call that was taken back: by a question, if the model was sure of it."""
    return ask_for_words(request, MISSING if (margin(request, decision) or 0.0) > _SURE else "")


def ask_for_words(request: Request, note: str = "") -> Request:
    """The request, to be answered in words; with a note on what they are to say."""
    *before, last = request.messages
    if note:
        last = replace(last, content=f"{last.content}\n\n{note}")
    return replace(request, messages=(*before, last), choice=Choice("none"))
