"""Masks that are found ahead of a step are those that are found in it."""

import asyncio
import json
from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="the transformers engine has an environment of its own: make test-torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

import numpy as np
import torch

from callsmith.core.schema import validate
from callsmith.core.values import Sampling
from callsmith.engines.decoding.compiler import Compiler
from callsmith.engines.transformers.engine import TransformersEngine
from callsmith.engines.transformers.masks import MaskFinder, MaskRow
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Grammar, JsonValue
from tests.engines.contract import say

pytestmark = [pytest.mark.torch, pytest.mark.weights]

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
PROMPT = Prompt("<|im_start|>user\nTell me about the sea.<|im_end|>\n<|im_start|>assistant\n")


@pytest.fixture
def rows(shared: TransformersEngine) -> Iterator[list[MaskRow]]:
    """Eight answers in one grammar, each some tokens further than the one before."""
    compiler, random = Compiler(shared.vocabulary, 2), np.random.default_rng(5)
    collected: list[MaskRow] = []
    for row in range(8):
        constraint = compiler.begin(Grammar(JsonValue(SCHEMA)))
        for _ in range(row):
            constraint.consume(int(random.choice(constraint.tokens())))
        collected.append((constraint, row))
    yield collected
    compiler.close()


def bits_for(shared: TransformersEngine) -> torch.Tensor:
    return torch.zeros(8, -(-shared.vocabulary.size // 32), dtype=torch.int32)


def test_they_are_the_same_and_found_once(shared: TransformersEngine, rows: list[MaskRow]) -> None:
    bits, ahead = bits_for(shared), bits_for(shared)
    MaskFinder(bits, 2, ahead=False).find(rows)
    finder = MaskFinder(ahead, 2, ahead=True)
    finder.begin(rows)
    finder.wait()
    assert torch.equal(bits, ahead)
    ahead.zero_()
    finder.find(rows)
    assert not ahead.any()
    finder.find(rows)
    assert torch.equal(bits, ahead)
    finder.close()


def test_a_row_that_another_answer_has_taken_is_found_anew(shared: TransformersEngine, rows: list[MaskRow]) -> None:
    bits = bits_for(shared)
    finder = MaskFinder(bits, 2, ahead=True)
    finder.begin(rows)
    (first, _), (last, _) = rows[0], rows[-1]
    finder.find([(last, 0), (first, 7)])
    swapped = bits.clone()
    finder.find(rows)
    assert torch.equal(swapped[[7, 0]], bits[[0, 7]])
    finder.close()


async def test_answers_are_valid_with_masks_from_ahead(shared: TransformersEngine) -> None:
    sampler, in_time = shared.sampler, shared.sampler.finder
    sampler.finder = MaskFinder(sampler._host_bits, 1, ahead=True)  # pyright: ignore[reportPrivateUsage]
    try:
        samplings = [Sampling(temperature=1.5, seed=seed, max_tokens=60) for seed in range(6)]
        answers = await asyncio.gather(*(say(shared, PROMPT, sampling, Grammar(JsonValue(SCHEMA))) for sampling in samplings))
    finally:
        sampler.finder.close()
        sampler.finder = in_time
    assert all(not validate(SCHEMA, json.loads(text)) for text, *_ in answers)
