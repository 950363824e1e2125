"""Reasoning within a budget: closed in the model's own way, in every format that has reasoning, wherever the budget ends."""

import random
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest

pytest.importorskip("llguidance")

from callsmith.core.errors import GrammarRefused, QueueFull, UsageError
from callsmith.core.events import CallReady, ModelEvent, Stopped, Text, Thought, Unreadable
from callsmith.core.values import Call, Choice, Message, Request, Sampling, Tool, Usage
from callsmith.engines.port import EngineInfo, Finished, Piece
from callsmith.engines.scripted import RecordedRequest
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import Format, Thinks, is_strong, nodes_of
from callsmith.formats.prompt.prompt import Prompt
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import literal_text, write
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.relay import Relay
from callsmith.models.local import LocalModel, Traits
from tests.effort import tries
from tests.formats.laws import markers_of
from tests.grammar.sampling import special_words

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = (Tool("get_weather", "", CITY), Tool("get_time", "", CITY))
THINKING = [format for format in formats().values() if format.thinks and not format.detectors]
EVERY = pytest.mark.parametrize("format", THINKING, ids=lambda format: format.name)
WORDS = (
    "so",
    " the",
    " user",
    " asks",
    ",",
    " hm",
    "\n",
    "\n\n",
    " {",
    '"city"',
    ": ",
    "<b>",
    "ä",
    "☀",
    " 42",
    ".",
    " </p>",
    "<",
    "[",
    "`x`",
)


@dataclass
class Writing:
    """An engine that writes an answer in the tokens it is given, and behind a closed thought what follows on one.

    `counts`: whether pieces say what the answer has cost so far.
    """

    first: Sequence[Piece]
    behind: Sequence[Piece]
    specials: frozenset[str] = frozenset()
    counts: bool = True
    context: int | None = None
    errors: list[Exception] = field(default_factory=list)
    asked: list[RecordedRequest] = field(default_factory=list)
    written: list[int] = field(default_factory=list)  # tokens, by request

    @property
    def info(self) -> EngineInfo:
        return EngineInfo("writing", specials=dict.fromkeys(self.specials, 1), context=self.context)

    async def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | Relay | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        if self.asked and self.errors:
            raise self.errors.pop(0)
        pieces = self.behind if self.goes_on(prompt) else self.first
        self.asked.append(RecordedRequest(prompt, sampling, grammar))
        self.written.append(0)
        size = await self.count(prompt.text)
        for piece in pieces:
            if self.written[-1] == sampling.max_tokens:
                yield Finished("length", Usage(size, self.written[-1]))
                return
            self.written[-1] += 1
            yield replace(piece, usage=Usage(size, self.written[-1]) if self.counts else None)
        yield Finished("stop", Usage(size, self.written[-1]))

    def goes_on(self, prompt: Prompt) -> bool:
        """Whether it is asked to go on with an answer. An invalid call is asked for again, which is another one."""
        return any(prompt.text.startswith(asked.prompt.text) and prompt.text != asked.prompt.text for asked in self.asked)

    async def count(self, text: str) -> int:
        return -(-len(text) // 4)

    async def close(self) -> None: ...


def tokens_of(text: str, specials: frozenset[str], chance: random.Random) -> list[Piece]:
    """The text in tokens that end anywhere, but for special ones."""
    pieces: list[Piece] = []
    at = 0
    while at < len(text):
        special = max((word for word in specials if text.startswith(word, at)), key=len, default="")
        following = min((place for word in specials if (place := text.find(word, at + 1)) > 0), default=len(text))
        piece = Piece(special, special=True) if special else Piece(text[at : min(at + chance.randint(1, 6), following)])
        pieces.append(piece)
        at += len(piece.text)
    return pieces


@dataclass(frozen=True)
class Read:
    thought: str
    text: str
    calls: tuple[tuple[str, object], ...]
    unreadable: int
    stopped: Stopped


async def read(model: LocalModel, request: Request) -> Read:
    events: list[ModelEvent] = [event async for event in model.stream(request)]
    assert isinstance(events[-1], Stopped)
    return Read(
        "".join(event.text for event in events if isinstance(event, Thought)),
        "".join(event.text for event in events if isinstance(event, Text)),
        tuple((event.call.name, dict(event.call.arguments)) for event in events if isinstance(event, CallReady)),
        sum(isinstance(event, Unreadable) for event in events),
        events[-1],
    )


@cache
def opening(text: str) -> Template:
    """A template that begins the answer with this text."""
    escaped = text.replace("'", "\\'").replace("\n", "\\n")
    return Template(CHATML + "{%- if add_generation_prompt %}{{- '" + escaped + "' }}{%- endif %}")


def markers(part: Thinks) -> tuple[str, str]:
    return literal_text(nodes_of(part.open)), literal_text(nodes_of(part.close))


@dataclass
class Case:
    """One answer of a model: what it thinks, and what follows."""

    format: Format
    thought: str
    rest: str
    text: str
    calls: tuple[tuple[str, object], ...]
    quotes: bool
    city: str
    is_opened: bool  # by the template
    specials: frozenset[str]
    chance: random.Random

    @classmethod
    def draw(cls, format: Format, chance: random.Random) -> "Case":
        call = Call("get_weather", {"city": chance.choice(["Bonn", "Köln", "a </b> <c>"])}, "a12345678")
        quotes = chance.random() < 0.25
        words = [chance.choice(WORDS) for _ in range(chance.randint(0, 25))]
        if quotes:  # the thought speaks of calls as the model writes them
            words.insert(chance.randint(0, len(words)), write(format, [call])[: chance.choice([12, 40, 999])])
        kind = chance.choice(["words", "call", "calls"])
        calls = [call] if kind == "call" else [call, replace(call, name="get_time", id="b12345678")] if kind == "calls" else []
        calls = calls[: format.calls.most]
        text = "It is so." if kind == "words" else ""
        specials = frozenset(special_words(format)) if chance.random() < 0.5 else frozenset[str]()
        return cls(
            format,
            "".join(words).strip(),
            write(format, calls, text=text),
            text,
            tuple((call.name, dict(call.arguments)) for call in calls),
            quotes,
            str(call.arguments["city"]),
            chance.random() < 0.5,
            specials,
            chance,
        )

    def engine(self) -> Writing:
        assert self.format.thinks
        open, close = markers(self.format.thinks)
        quoted = frozenset(word for word in self.specials if word in self.thought)  # in letters, as a model speaks of them
        first = [
            *([] if self.is_opened else tokens_of(open, self.specials, self.chance)),
            *tokens_of(self.thought, self.specials - quoted, self.chance),
            *tokens_of(close + self.rest, self.specials, self.chance),
        ]
        return Writing(first, tokens_of(self.rest, self.specials, self.chance), self.specials, self.chance.random() < 0.7)

    def model(self, engine: Writing) -> LocalModel:
        assert self.format.thinks
        template = opening(markers(self.format.thinks)[0] if self.is_opened else "")
        return LocalModel(engine, self.format, template, Traits(thinks=True))


async def check(case: Case, budget: int, choice: Choice) -> bool:
    """Ask with a budget; whether the thought was cut short."""
    request = Request((Message.user("Weather?"),), TOOLS, choice)
    state = case.chance.getstate()
    free_engine = case.engine()
    free = await read(case.model(free_engine), request)
    case.chance.setstate(state)
    engine = case.engine()
    held = await read(case.model(engine), replace(request, thinking_budget=budget))
    assert case.format.thinks
    closer = markers(case.format.thinks)[1]
    if any(len(asking.asked) > 1 and not asking.goes_on(asking.asked[-1].prompt) for asking in (engine, free_engine)):
        assert case.quotes  # half a call in a thought: it is asked for again, with or without a budget
        return False
    if len(engine.asked) == 1:
        if budget:
            assert (held.thought, held.text, held.calls, held.unreadable) == (
                free.thought,
                free.text,
                free.calls,
                free.unreadable,
            )
        return False
    before, after = (asked.prompt.text for asked in engine.asked[:2])
    assert after.startswith(before)
    begun = after[len(before) :]
    opener = "" if case.is_opened else markers(case.format.thinks)[0]
    assert begun.startswith(opener.rstrip()) and begun.endswith(closer.lstrip("\n")), begun
    assert case.thought.startswith(begun[len(opener.rstrip()) : begun.rindex(closer.strip())].strip()), (begun, case.thought)
    assert free.thought.startswith(held.thought) or case.quotes
    assert (held.text, held.unreadable) == (case.text, 0), (held, begun, case.rest)
    quoted = (("get_weather", {"city": case.city}),) if case.quotes and not case.calls else ()
    assert held.calls == case.calls or held.calls == quoted, (held, begun, case.rest)  # a whole call in a thought counts alone
    assert engine.asked[1].prompt.pieces and "".join(engine.asked[1].prompt.pieces) == after
    if case.quotes:
        return True
    assert not any(marker in held.thought + held.text for marker in markers_of(case.format) if is_strong(marker)), held
    spent = engine.written[0] + await engine.count(begun[begun.rindex(closer.strip()) :]) + engine.written[1]
    assert abs(held.stopped.usage.completion - spent) <= 2
    return True


@EVERY
@pytest.mark.generated
async def test_a_thought_is_closed_wherever_the_budget_ends_and_nothing_else_changes(format: Format) -> None:
    closed = 0
    for number in range(tries(25, 300, 2000)):
        chance = random.Random(f"{format.name} {number}")
        case = Case.draw(format, chance)
        budget = chance.choice([0, 1, 2, 3, 5, 8, 13, 21, 34, 1000])
        choice = Choice("required") if case.calls and chance.random() < 0.3 else Choice()
        try:
            closed += await check(case, budget, choice)
        except AssertionError as error:
            raise AssertionError(f"{number}: {error}\n{case}\nbudget {budget} {choice}") from error
    assert closed


class SmallTokens(random.Random):
    """Chance that makes all tokens as small as they may be."""

    def randint(self, a: int, b: int) -> int:
        return a


async def test_a_marker_that_comes_letter_by_letter_is_waited_for() -> None:
    format, thought = format_named("apriel"), "so hm"  # its marker is one of the longest
    for budget in range(1, len(thought) + 10):
        rest = write(format, [], text="It is so.")
        case = Case(format, thought, rest, "It is so.", (), False, "", True, frozenset(), SmallTokens(1))
        await check(case, budget, Choice())


HERMES = format_named("hermes")
ASK = Request((Message.user("Weather?"),), TOOLS)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bonn"}}\n</tool_call>'


def thinking(thought: str, rest: str, **engine: Any) -> tuple[LocalModel, Writing]:
    """A model that thinks a word a token, in a thought that its template opens."""
    words = [Piece(f"{word} ") for word in thought.split()]
    writing = Writing([*words, Piece("</think>"), Piece(rest)], [Piece(rest)], **engine)
    return LocalModel(writing, HERMES, opening("<think>\n"), Traits(thinks=True)), writing


async def test_the_budget_is_counted_in_tokens_and_the_answer_is_asked_for_with_what_is_left() -> None:
    model, engine = thinking("one two three four five", CALL)
    answer = await read(model, replace(ASK, thinking_budget=3, sampling=Sampling(max_tokens=100)))
    assert (answer.thought, answer.calls) == ("one two three", (("get_weather", {"city": "Bonn"}),))
    closing = await engine.count("\n</think>\n\n")
    assert engine.asked[1].sampling.max_tokens == 100 - 3 - closing
    assert answer.stopped.usage.completion == 3 + closing + 1
    assert answer.stopped.usage.prompt == await engine.count(engine.asked[0].prompt.text)


async def test_a_required_call_is_held_by_a_grammar_behind_the_thought() -> None:
    model, engine = thinking("one two three", CALL)
    answer = await read(model, replace(ASK, thinking_budget=1, choice=Choice("required")))
    assert answer.calls and engine.asked[1].grammar is not None and engine.asked[1].grammar != engine.asked[0].grammar


async def test_a_thought_that_leaves_no_room_for_an_answer_is_not_closed() -> None:
    model, engine = thinking("one two three four five", "So.")
    answer = await read(model, replace(ASK, thinking_budget=3, sampling=Sampling(max_tokens=5)))
    assert len(engine.asked) == 1 and answer.stopped.reason == "length"
    model, engine = thinking("one two three four five", "So.", context=1)
    assert (await read(model, replace(ASK, thinking_budget=3))).text == "So." and len(engine.asked) == 1


@pytest.mark.parametrize("error", [QueueFull(4), GrammarRefused("too large", status=400)], ids=["queue", "grammar"])
async def test_whoever_has_no_place_in_the_queue_waits_for_one(error: Exception) -> None:
    model, engine = thinking("one two three four five", "So.", errors=[error])
    assert (await read(model, replace(ASK, thinking_budget=3))).text == "So."
    assert len(engine.asked) == 2 and not engine.errors


async def test_no_budget_at_all_closes_what_the_template_has_opened() -> None:
    for wish in ({"thinking": False}, {"thinking_budget": 0}):
        engine = Writing([Piece("So.")], [])
        model = LocalModel(engine, HERMES, opening("<think>\n"), Traits(thinks=True))
        answer = await read(model, replace(ASK, **wish))
        assert (answer.thought, answer.text) == ("", "So.")
        assert engine.asked[0].prompt.text.endswith("<think>\n\n</think>\n\n")


async def test_a_template_that_knows_efforts_is_told_and_one_that_refuses_is_not() -> None:
    told = CHATML + "{%- if reasoning_effort %}{{ 'Reasoning: ' + reasoning_effort }}{%- endif %}"
    strict = CHATML + "{%- if reasoning_effort not in [undefined, 'high'] %}{{ raise_exception('no such effort') }}{%- endif %}"
    for source, effort, expected in ((told, "minimal", "Reasoning: low"), (strict, "low", "assistant\n")):
        engine = Writing([Piece("So.")], [])
        assert (await read(LocalModel(engine, HERMES, Template(source)), replace(ASK, effort=effort))).text == "So."
        assert engine.asked[0].prompt.text.rstrip("\n").endswith(expected.rstrip("\n"))


def test_a_budget_below_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="thinking_budget"):
        replace(ASK, thinking_budget=-1)


@pytest.mark.model
@pytest.mark.weights
async def test_real_weights_go_on_behind_a_closed_thought_from_what_is_cached(
    shallow: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, ends = shallow.engine, list[Usage]()

    async def generate(*asked: Any) -> AsyncGenerator[Piece | Finished, None]:
        async for piece in type(engine).generate(engine, *asked):
            if isinstance(piece, Finished):
                ends.append(piece.usage)
            yield piece

    monkeypatch.setattr(engine, "generate", generate)
    model = LocalModel(engine, HERMES, opening("<think>\n"), Traits(thinks=True))
    request = replace(ASK, choice=Choice("required"), thinking_budget=8, sampling=Sampling(temperature=0.0, max_tokens=120))
    answer = await read(model, request)
    assert answer.thought and await engine.count(answer.thought) <= 8
    assert answer.calls and answer.calls[0][0] in ("get_weather", "get_time") and not answer.unreadable
    assert 0 < answer.stopped.usage.reasoning <= 8 < answer.stopped.usage.completion <= 120
    (behind,) = ends  # the first generation is given up at the budget
    assert behind.prompt - behind.cached <= 16, "what was read and thought before is not read again"
