"""A format for a chat template that no known format fits: read off from what the template writes.

The template renders made-up calls (`shown`), their words are masked (`masks`), and comparing one argument with two, one call
with two, a string with a number shows what is literal and what repeats. What comes out is believed only if it keeps the laws and
reads back every call the template wrote.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from callsmith.core.events import CallReady
from callsmith.formats.detect import detect
from callsmith.formats.laws import calls_in, check, text_in
from callsmith.formats.layout import (
    ARGS,
    ID,
    INDEX,
    JSON,
    KEY,
    NAME,
    PYTHON,
    RAW,
    TYPE,
    VALUE,
    Calls,
    Each,
    Format,
    Hole,
    Node,
    Nodes,
    Notation,
    Obj,
    Part,
    Raw,
    Says,
    Spelling,
    Thinks,
    nodes_of,
)
from callsmith.formats.masks import EACH, HOLES, ISOLATED, MARK, Series, divide, named, notations, numbered, single, whole
from callsmith.formats.read import read
from callsmith.formats.shown import (
    NO_ARGUMENT,
    ONE_ARGUMENT,
    SPOKEN,
    THINKING,
    THOUGHT,
    TOOLS,
    TWO_ARGUMENTS,
    TWO_CALLS,
    TYPED,
    Scene,
    Shown,
    shared_end,
    shared_start,
)
from callsmith.formats.template import Template

NINE = "[a-zA-Z0-9]{9}"
NUMBERS = "[0-9]{1,3}"
PIECES = re.compile(r"(?<=>)(?=<)|(?<=>)(?=\[)|(?<=>\n)(?=<)|(?<=\])(?=<)|(?<=\])(?=\[)")
REASONING = re.compile(r"<((?:\w+:)?think(?:ing)?)>|\[(THINK)\]")


@dataclass(frozen=True, slots=True)
class Inferred:
    """A format that was worked out, a turn it was worked out from, and what should be known about it."""

    format: Format
    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unclear:
    """Nothing could be worked out, and why."""

    reasons: tuple[str, ...]


def infer(template: Template, name: str = "inferred") -> Inferred | Unclear:
    """The format in which a template writes calls, found out by rendering."""
    if not template.manners.calls:
        return Unclear(("the template shows no calls",))
    reasons: list[str] = []
    for answered in (False, True):
        shown = Shown(template, answered)
        if any(shown.turn(scene) is None for scene in (ONE_ARGUMENT, TWO_ARGUMENTS, TWO_CALLS)):
            reasons.append("the template refuses a turn with calls")
            continue
        for format, text in _candidates(shown, name):
            problem = _problem(shown, format)
            if not problem:
                return Inferred(format, text, tuple(_notes(shown, format)))
            reasons.append(problem)
    return Unclear(tuple(dict.fromkeys(reasons)) or ("the calls are not written in any shape that is understood",))


# --- candidates ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reading:
    """Turns masked under one idea of how arguments are written: with one call and with two."""

    one: str
    two: str
    values: Spelling
    each: Each | None = None


def _candidates(shown: Shown, name: str) -> Iterator[tuple[Format, str]]:
    for reading in (*_as_objects(shown), *_one_by_one(shown)):
        for series, index in _sections(reading):
            yield _format(shown, reading, series, name, index), shown.turn(TWO_CALLS) or ""


def _as_objects(shown: Shown) -> Iterator[_Reading]:
    """The arguments are one object."""
    for notation in notations(TWO_ARGUMENTS, shown.turn(TWO_ARGUMENTS) or ""):
        one, two, more = (_masked(shown, scene, notation) for scene in (ONE_ARGUMENT, TWO_CALLS, TWO_ARGUMENTS))
        if one is not None and two is not None and one == more:
            yield _Reading(one, two, notation)
    
def _masked(shown: Shown, scene: Scene, notation: Notation) -> str | None:
    text = shown.turn(scene)
    return None if text is None else whole(text, scene.calls, notation)


def _one_by_one(shown: Shown) -> Iterator[_Reading]:
    """The arguments stand one by one, each with its key and value."""
