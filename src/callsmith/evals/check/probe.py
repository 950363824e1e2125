"""Probes: one question to a server each, and what its answer says about the server.

    @probe("A required call is made")
    async def required(context: ProbeContext) -> None:
        answer = await context.ask("Hello!", tools=[WEATHER], choice=Choice("required"))
        context.need(answer.calls, "the answer has no call")

Whatever depends on the server alone is `Wrong`; what a better model might have done is `ModelFault`, and no fault of the server.
"""

import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias, TypeVar

from callsmith.core.schema import validate
from callsmith.core.types.escaped_text import one_line
from callsmith.core.values import Choice, Json, Message, Output, Request, Sampling, Tool
from callsmith.evals.check.dialects.dialect import CheckedDialect
from callsmith.evals.check.exchange import Answer, CheckedServer, Exchange, ReceivedCall
from callsmith.formats import formats
from callsmith.formats.algebra import Calls, Format, Thinks, first_literals, is_strong, nodes_of
from callsmith.formats.inference.find_calls import find_calls
from callsmith.models.presets import preset_for

Probing: TypeAlias = "Callable[[ProbeContext], Awaitable[None]]"
F = TypeVar("F", bound=Callable[..., Any])

TOKENS = 256  # of an answer, where nobody says: models that reason need more
CUT = "the answer was cut in a call; --tokens gives it more"
_WORD = re.compile(r"[A-Za-z]{3}")  # a marker of brackets alone may stand in any text
_ENDS = ("<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|end|>", "<|endoftext|>", "</s>", "</think>")  # of turns and reasoning


class Wrong(Exception):
    """The server does something that no client can work with, or not what it was asked for."""


class ModelFault(Exception):
    """The model has not done it; another may."""


class Skipped(Exception):
    """It cannot be found out here."""


class Late(Skipped):
    """There was no answer in time: the model may only be slow."""


class Gone(Wrong):
    """The connection broke, and there may be no server any more."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe. `title` is what holds where the server is right, `dialects` are those it is for."""

    name: str
    title: str
    run: Probing
    dialects: Collection[str] = ()

    def is_for(self, dialect: CheckedDialect) -> bool:
        return not self.dialects or dialect.name in self.dialects


PROBES: list[Probe] = []


def probe(title: str, *dialects: str, name: str = "") -> Callable[[F], F]:
    """Make a function a probe. Its name is that of the module and of the function."""

    def register(function: F) -> F:
        probe_name = name or f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        PROBES.append(Probe(probe_name, title, function, dialects))
        return function

    return register


@dataclass(slots=True)
class ProbeContext:
    """What a probe works with: one dialect of one server, and one model. What was asked once is not asked again."""

    target: CheckedServer
    dialect: CheckedDialect
    model: str
    tokens: int = TOKENS
    _answers: dict[str, Answer] = field(default_factory=dict[str, Answer])

    async def ask(
        self,
        *messages: str | Message,
        tools: Sequence[Tool] = (),
        choice: Choice = Choice(),
        parallel: bool | None = None,
        stream: bool = False,
        max_tokens: int = 0,
        stop: tuple[str, ...] = (),
        output: Output | None = None,
        counted: bool = False,
        anew: int = 0,
    ) -> Answer:
        """The answer; the server is wrong if it refuses. With another number for `anew` it is asked again.

        `counted`: chat completions are asked to count the tokens of a stream, which not every server lets itself be asked.
        """
        sampling = Sampling(temperature=0.0, seed=1, max_tokens=max_tokens or self.tokens, stop=stop)
        conversation = tuple(Message.user(message) if isinstance(message, str) else message for message in messages)
        request = Request(conversation, tuple(tools), choice, parallel, sampling, output=output)
        key = f"{request!r} {stream} {counted} {anew}"
        if key in self._answers:
            self.target.exchanges.append(self._answers[key].exchange)
            return self._answers[key]
        body = self.dialect.write(self.model, request, stream=stream)
        if not counted:
            body.pop("stream_options", None)
        exchange = await self.send(body)
        if exchange.status != 200:
            raise Wrong(f"refused: {describe(exchange)}")
        answer = self._answers[key] = self.dialect.read(exchange, stream=stream)
        return answer

    async def send(self, body: Json, *, path: str = "", headers: Mapping[str, str] | None = None) -> Exchange:
        """The answer to a body as it is, whatever its status."""
        spoken = self.dialect.spoken
        own = spoken.headers(self.target.key) if headers is None else headers
        base = spoken.base_url(self.target.url)
        exchange = await self.target.send("POST", path or spoken.path, body, headers=own, base=base)
        if exchange.is_late:
            raise Late(exchange.failure)
        if exchange.failure:
            raise Gone(exchange.failure)
        return exchange

    def body(self, *messages: str, **more: Json) -> dict[str, Json]:
        """A plain body in this dialect, with fields of one's own."""
        request = Request(tuple(map(Message.user, messages)), sampling=Sampling(max_tokens=16))
        return {**self.dialect.write(self.model, request, stream=False), **more}

    def need(self, condition: object, otherwise: str) -> None:
        """The server is wrong unless this holds."""
        if not condition:
            raise Wrong(otherwise)

    def need_refusal(self, exchange: Exchange) -> None:
        """The server is wrong unless it says that the mistake is the client's. That it is busy says nothing of a mistake."""
        self.need(exchange.status != 429, f"refused: {describe(exchange)}")
        self.need(400 <= exchange.status < 500, f"it is the client's mistake: {describe(exchange)}")

    def clean(self, answer: Answer, tools: Sequence[Tool] = ()) -> None:
        """The server is wrong if a client sees markup, or a call that was not read. A call without the markers that the model was
        taught is the model's doing, even if some servers read it all the same; one that was cut cannot be read."""
        if self.is_cut_in_call(answer):
            raise ModelFault(CUT)
        if mark := next((mark for mark in markup(self.model) if mark in answer.text), ""):
            raise Wrong(f"the text has {mark} in it: {answer.text[:200]!r}")
        names = {tool.name for tool in tools}
        if tools and (calls := [call.name for call in find_calls(answer.text, tools).calls if call.name in names]):
            if writes_bare_calls(self.model):
                raise Wrong(f"a call of {calls[0]} is in the text, and was not read as one: {answer.text[:200]!r}")
            raise ModelFault(f"the model wrote a call of {calls[0]} without the markers of its format: {answer.text[:200]!r}")

    def is_cut_in_call(self, answer: Answer) -> bool:
        """Whether the text ends, because of the limit, in a call that has begun."""
        behind = [answer.text.rpartition(mark)[2] for mark in call_openings(self.model) if mark in answer.text]
        return answer.finish == "length" and bool(behind) and not any(mark in min(behind, key=len) for mark in markup(self.model))

    def shape(self, answer: Answer, *kinds: str) -> None:
        """The server is wrong if the answer has faults, of these kinds or of any."""
        for kind, what in answer.faults.items():
            if not kinds or kind in kinds:
                raise Wrong(what)

    def require_call(self, answer: Answer) -> ReceivedCall:
        """The first call of an answer that must have one, unless it was cut before."""
        begun = answer.thoughts or _is_open_object(answer.text) or self.is_cut_in_call(answer)
        if not answer.calls and answer.finish == "length" and begun:
            raise ModelFault("the answer was cut in its reasoning or in the call; --tokens gives it more")
        cut = ", until the limit of its tokens" if answer.finish == "length" else ""
        self.need(answer.calls, f"a call was required, and there is none but the text {answer.text[:100]!r}{cut}")
        return answer.calls[0]

    def require_fitting_call(self, answer: Answer, tool: Tool) -> ReceivedCall:
        """The one call of a tool that had to be called, with arguments that fit."""
        call = self.require_call(answer)
        self.need(call.name == tool.name, f"a call of {tool.name} was required, and {call.name} is called")
        if answer.finish == "length":
            raise ModelFault("the call was not finished within the tokens that it had")
        arguments = call.arguments
        if arguments is None:
            raise Wrong(f"the arguments are no JSON object: {call.text[:200]}")
        if complaints := validate(tool.parameters, arguments):
            raise Wrong(f"the arguments do not fit the schema: {'; '.join(map(str, complaints))[:300]}")
        return call


@cache
def markup(model: str) -> tuple[str, ...]:
    """What a model writes for its template, and no client should see: the ends of turns, and the markers around calls and
    reasoning. Those of every known format, where a model's name does not say which it was taught."""
    parts = [part for format in _spoken(model) for part in format.parts if isinstance(part, Calls | Thinks)]
    inside = [part.item if isinstance(part, Calls) else () for part in parts]
    edges = [(nodes_of(part.open), nodes_of(part.close), item, item[::-1]) for part, item in zip(parts, inside, strict=True)]
    markers = [mark for nodes in edges for node in nodes for mark in first_literals(node)]
    return tuple(dict.fromkeys((*_ENDS, *filter(_is_telling, markers))))


@cache
def call_openings(model: str) -> tuple[str, ...]:
    """The markers with which calls of a model begin."""
    parts = [part for format in _spoken(model) for part in format.parts if isinstance(part, Calls)]
    markers = [mark for part in parts for nodes in (nodes_of(part.open), part.item) for mark in first_literals(nodes)]
    return tuple(dict.fromkeys(filter(_is_telling, markers)))


def _is_open_object(text: str) -> bool:
    """Whether a text is an object that does not end. So arguments are shown where an API has no calls that are not whole."""
    try:
        json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return text.lstrip().startswith("{")
    return False


def _spoken(model: str) -> Collection[Format]:
    preset = preset_for(model)
    return preset.formats if preset else formats().values()


def _is_telling(mark: str) -> bool:
    return is_strong(mark) and bool(_WORD.search(mark))


def writes_bare_calls(model: str) -> bool:
    """Whether models of this name are taught calls without markers: what is a call then, their server must know."""
    preset = preset_for(model)
    calls = next((part for part in preset.formats[0].parts if isinstance(part, Calls)), None) if preset else None
    return calls is not None and not all(map(is_strong, first_literals(calls.open, first_literals(calls.item))))


def describe(exchange: Exchange) -> str:
    """The status and the words of a refusal."""
    return f"{exchange.status} {one_line(exchange.text.strip(), 300)}" if exchange.status else exchange.failure
