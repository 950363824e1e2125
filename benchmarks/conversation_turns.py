"""What is said in a conversation of the benchmark, and what is right then: `Talk` and `Turn`.

Of a turn that needs no tool, nothing may be called: small talk, general knowledge, what the tools are for, and what none of them
can do. A question about an earlier result may be answered by looking it up again; what acts must not act again.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from benchmarks.journeys import Journey, World, faults, found, repeated
from callsmith.core.values import Call

Kind: TypeAlias = Literal[
    "small talk", "knowledge", "abilities", "nothing fits", "question", "earlier result", "order", "correction", "two at once"
]
WITHOUT_CALLS: frozenset[Kind] = frozenset({"small talk", "knowledge", "abilities", "nothing fits"})
_LIKE_A_CALL = re.compile(r"""<tool_?call|["'](name|arguments|parameters)["']\s*:|^\s*\w+[({]["'{]?\w+["']?\s*[=:]|^\s*\w+\(\)""")
_OUT_OF_PLACE = r"\bsorry\b|unable to|(cannot|can['’]t) (assist|help)|\bfunctions?\b|\bjson\b"  # where one is greeted or thanked


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says. `says` are patterns that the answer must have, `never` those that it must not.

    `runs` are patterns of calls that must have run, each as its name and its arguments in JSON. `does` are patterns of what was
    done, one for each side effect: any other is one too many.
    """

    kind: Kind
    text: str
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    does: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation: the world its tools are in, their names, and the turns. By its id it belongs to one half."""

    id: str
    world: type[World]
    tools: str
    turns: tuple[Turn, ...]


def chats(text: str, *says: str) -> Turn:
    """A greeting, thanks: no reason to call, nor to be sorry."""
    return Turn("small talk", text, says, never=(_OUT_OF_PLACE,))


def knows(text: str, *says: str) -> Turn:
    """What one knows, or writes, without any tool."""
    return Turn("knowledge", text, says)


def offers(text: str, *says: str) -> Turn:
    """A question for what can be done here."""
    return Turn("abilities", text, says)


def cannot(text: str, *never: str) -> Turn:
    """What none of the tools can do. `never`: what would be said by somebody who pretends to have done it."""
    return Turn("nothing fits", text, never=never)


def asks(text: str, *says: str, runs: str) -> Turn:
    """A question that one call answers."""
    return Turn("question", text, says, runs=(runs,))


def recalls(text: str, *says: str, never: tuple[str, ...] = ()) -> Turn:
    """A question about what was found before."""
    return Turn("earlier result", text, says, never)


def orders(text: str, *says: str, does: str) -> Turn:
    """Something to be done, once."""
    return Turn("order", text, says, does=(does,))


def corrects(text: str, *says: str, does: str, never: tuple[str, ...] = ()) -> Turn:
    """What was done is to be done otherwise."""
    return Turn("correction", text, says, never, does=(does,))


def both(text: str, *says: str, runs: tuple[str, ...] = (), does: tuple[str, ...] = ()) -> Turn:
    """Two things at once."""
    return Turn("two at once", text, says, runs=runs, does=does)


def call_text(call: Call) -> str:
    """A call as the patterns of `Turn.runs` see it."""
    return f"{call.name} {json.dumps(call.arguments, sort_keys=True, ensure_ascii=False)}"


def turn_faults(turn: Turn, answer: str, calls: Sequence[str], ran: Sequence[str], done: Sequence[str]) -> Iterable[str]:
    """What is wrong with a turn; nothing where it is right. Of the calls `made`, some `ran`; `done` are the side effects."""
    yield from faults(Journey(turn.text, "", turn.says, turn.does), answer, done)
    yield from repeated(ran)
    if _LIKE_A_CALL.search(answer):
        yield "a call as words"
    for pattern in turn.never:
        if re.search(pattern, answer, re.IGNORECASE):
            yield f"says {pattern}"
    for pattern in turn.runs:
        if not any(re.search(pattern, call, re.IGNORECASE | re.DOTALL) for call in ran):
            yield f"did not call {pattern}"
    if turn.kind in WITHOUT_CALLS and calls:
        yield f"called, unasked: {'; '.join(calls)}"
    if len(done) > len(turn.does) > 0:
        yield f"did more than was asked: {'; '.join(done)}"


def plain(text: str) -> str:
    """A name as the tools look it up: however it is written, "The Kitchen" is the kitchen."""
    return re.sub(r"^(the|my|our) ", "", re.sub(r"[\s_-]+", " ", text.strip().lower()))


def look_up(known: Mapping[str, Any], name: str, what: str) -> Any:
    """What a tool knows by a name, if that has the known one in it: "tomatoes" is found as "tomato"."""
    return found(known, next((name_known for name_known in known if name_known in plain(name)), name), what)
