"""Soundness: whatever a grammar lets through is valid by its schema, but for exactly the keywords that the grammar lists.

Answers are drawn at random through a real tokenizer, read by the format's own reader, and judged by a validator that knows
nothing of grammars.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.events import CallReady, Unreadable
from callsmith.core.values import Schema, Tool
from callsmith.formats import formats
from callsmith.formats.algebra import Format
from callsmith.grammar.nodes import Grammar
from tests.grammar import bfcl, schemas
from tests.grammar.checking import read_sample, required
from tests.grammar.judging import complaint
from tests.grammar.sampling import Sampler, compiler

pytestmark = pytest.mark.weights

JSON_FORMATS = ("hermes", "llama3-json", "mistral")
OTHERS = ("qwen3-coder", "pythonic", "minimax-m3", "gemma4", "kimi-k3", "deepseek-v32", "glm45")
ANSWERS = 3


def rotated(documents: Iterable[Schema]) -> Iterator[tuple[int, Format, Schema]]:
    """Each schema with a format: half of them JSON, the others in turn."""
    for number, schema in enumerate(documents):
        names = JSON_FORMATS if number % 2 else OTHERS
        yield number, formats()[names[number // 2 % len(names)]], schema


def drawn(format: Format, grammar: Grammar, tool: Tool, seed: int) -> Iterator[dict[str, Any]]:
    """The arguments of some answers."""
    tokens, compiling = compiler()
    sampler = Sampler(tokens, compiling, format, seed)
    for _ in range(ANSWERS):
        sample = sampler.draw(grammar)
        if sample.whole:
            events = read_sample(format, sample, [tool], tokens.specials)
            assert not [event for event in events if isinstance(event, Unreadable)], sample.text
            (ready,) = [event for event in events if isinstance(event, CallReady)]
            yield dict(ready.call.arguments)


def check(documents: Iterable[Schema]) -> tuple[int, int]:
    """Hold answers against their schemas. How many grammars there were, and how many answers."""
    grammars = answers = 0
    for number, format, schema in rotated(documents):
        tool = Tool("f", "", schema)
        try:
            grammar = required(format, [tool], parallel=False)
        except UnsupportedSchema as refused:
            assert "no value fits" in refused.why or "cannot write the key" in refused.why
            continue
        grammars += 1
        for arguments in drawn(format, grammar, tool, number):
            if "Infinity" in json.dumps(arguments):
                continue  # 1e999 is a number of JSON, but no float
            answers += 1
            wrong = complaint(schema, grammar.unenforced, arguments)
            assert not wrong, f"{format.name}: {wrong} in {arguments} by {json.dumps(schema)}; left: {grammar.unenforced}"
    return grammars, answers


@pytest.mark.req("R199")
@pytest.mark.req("R226")
def test_answers_are_valid_by_schemas_of_every_kind() -> None:
    grammars, answers = check(schemas.schema(seed) for seed in range(90))
    assert grammars > 70
    assert answers > 180


@pytest.mark.req("R226")
def test_answers_are_valid_by_the_schemas_of_real_tools() -> None:
    grammars, answers = check(islice(bfcl.schemas(), 0, None, 70))
    assert grammars > 30
    assert answers > 80


@pytest.mark.slow
def test_a_thousand_grammars_let_through_only_what_is_valid() -> None:
    generated, _ = check(schemas.schema(seed) for seed in range(1000, 1560))
    real, _ = check(islice(bfcl.schemas(), 0, None, 4))
    assert generated + real >= 1000
