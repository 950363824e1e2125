"""What the laws of the dialects are tried on: bodies that may be anything, tools, samplings, and answers, event by event."""

import itertools
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Report, Stopped, Text, Thought
from callsmith.core.types.model_step import CallDecision
from callsmith.core.values import Call, Choice, Sampling, TokenBias, TokenLogprob, Tool, Usage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def odd(parts: str, kinds: str = "") -> st.SearchStrategy[Any]:
    """JSON in which keys that mean something stand in odd places, and words that do."""
    keys, leaves = st.sampled_from(parts.split()), JSON | st.sampled_from(kinds.split()) if kinds else JSON
    return st.recursive(
        leaves, lambda inner: st.dictionaries(keys, inner, max_size=4) | st.lists(inner, max_size=2), max_leaves=10
    )


ODD = odd("role content tool_calls function name type arguments parameters id json_schema schema json")  # as OpenAI has it


def bodies(known: str, inside: st.SearchStrategy[Any] = ODD) -> st.SearchStrategy[Any]:
    """Bodies that have some of the fields of a dialect, filled with anything, or are no bodies at all."""
    return st.dictionaries(st.sampled_from(known.split()), inside, max_size=6) | inside


NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(WORDS, VALUES, max_size=3)
CALLS = st.builds(Call, NAMES, ARGUMENTS, NAMES)
SCHEMAS = st.dictionaries(NAMES, st.sampled_from([{"type": "string"}, {"type": "array", "items": {}}]), max_size=3).map(
    lambda properties: {"type": "object", "properties": properties}
)
TOOLS = st.builds(Tool, NAMES, WORDS, SCHEMAS, strict=st.booleans())
TOOLSETS = st.lists(TOOLS, max_size=3, unique_by=lambda tool: tool.name).map(tuple)


BIASES = st.none() | st.floats(-20, 20)
_SCORES = st.integers(-(10**4), 10**4).map(lambda hundredths: hundredths / 100)  # as they are written
DECISIONS = st.none() | st.builds(CallDecision, st.booleans(), _SCORES, _SCORES)
_CHANCES = st.floats(-100, 0)
_TOKENS = st.builds(TokenLogprob, st.binary(max_size=4), _CHANCES)
LOGPROBS = st.lists(
    st.builds(TokenLogprob, st.binary(max_size=4), _CHANCES, st.lists(_TOKENS, max_size=2).map(tuple)), max_size=2
).map(tuple)


def samplings(max_tokens: st.SearchStrategy[int | None]) -> st.SearchStrategy[Sampling]:
    probability = st.none() | st.floats(0, 1)
    return st.builds(
        Sampling,
        temperature=st.none() | st.floats(0, 5),
        top_p=probability,
        top_k=st.none() | st.integers(0, 100),
        min_p=probability,
        seed=st.none() | st.integers(-(2**62), 2**62),
        max_tokens=max_tokens,
        stop=st.lists(WORDS.filter(bool), max_size=2).map(tuple),
        typical_p=probability,
        presence_penalty=st.none() | st.floats(-2, 2),
        frequency_penalty=st.none() | st.floats(-2, 2),
        repetition_penalty=st.none() | st.floats(0.1, 10),
        penalty_window=st.none() | st.integers(0, 100),
        logit_bias=st.dictionaries(st.integers(0, 10**6), st.floats(-100, 100), max_size=2).map(_biases),
        logprobs=st.none() | st.integers(0, 20),
    )


def _biases(by_token: dict[int, float]) -> tuple[TokenBias, ...]:
    return tuple(TokenBias(token, bias) for token, bias in by_token.items())


def choices(tools: tuple[Tool, ...]) -> st.SearchStrategy[Choice]:
    names = tuple(tool.name for tool in tools)
    some = st.lists(st.sampled_from(names), min_size=1, unique=True).map(tuple) if names else st.just(())
    plain = st.sampled_from([Choice(), Choice("none"), Choice("required")])
    return plain | st.builds(Choice, st.sampled_from(["auto", "required"]), some)


def parallels(choice: Choice) -> st.SearchStrategy[bool | None]:
    """Whether calls may be parallel; of a tool that is named it is always known."""
    is_named = choice.mode == "required" and len(choice.names) == 1
    return st.booleans() if is_named else st.sampled_from([None, True, False])


@st.composite
def said(draw: st.DrawFn, logprobs: st.SearchStrategy[tuple[TokenLogprob, ...]] = st.just(())) -> list[ModelEvent]:  # noqa: B008
    """What comes before the end of an answer. Its calls have different ids."""
    events: list[ModelEvent] = []
    ids: set[str] = set()
    number = 0
    for kind in draw(st.lists(st.sampled_from(["text", "thought", "call"]), max_size=5)):
        if kind == "call":
            call = draw(CALLS)
            call = replace(call, id=f"{call.id}-{number}") if call.id in ids else call
            ids.add(call.id)
            cuts = draw(st.lists(st.integers(0, 50), max_size=3))
            events.append(CallStarted(number, call.name, call.id))
            events += [CallArguments(number, piece) for piece in _pieces(call.text, cuts)]
            events.append(CallReady(number, call))
            number += 1
        elif kind == "text":
            events.append(Text(draw(WORDS.filter(bool)), draw(logprobs)))
        else:
            events.append(Thought(draw(WORDS.filter(bool))))
    return events


def _pieces(text: str, cuts: list[int]) -> list[str]:
    marks = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in itertools.pairwise(marks)]


def reasons(events: list[ModelEvent]) -> st.SearchStrategy[Any]:
    called = any(isinstance(event, CallReady) for event in events)
    return st.just("calls") if called else st.sampled_from(["stop", "length"])


@st.composite
def answers(draw: st.DrawFn) -> list[ModelEvent]:
    events = draw(said(LOGPROBS))
    usage, decision = draw(st.builds(Usage, *[st.integers(9, 99)] * 2, *[st.integers(0, 9)] * 2)), draw(DECISIONS)
    return [*events, Stopped(draw(reasons(events)), usage, Report(decision=decision))]
