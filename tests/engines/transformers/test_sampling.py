"""Masks and sampling on the device are those of the sampler that has one row of logits before it."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="the transformers engine has an environment of its own: make test-torch")
pytest.importorskip("transformers")

import numpy as np
import torch

from callsmith.core.values import Sampling
from callsmith.engines.decoding.sequence import Sampler
from callsmith.engines.transformers.masks import FIRST_QUOTE, MASKED, UNMASKED, apply_masks
from callsmith.engines.transformers.sampling import draw

pytestmark = pytest.mark.torch

WIDTH = 1000
SETTINGS = [
    Sampling(temperature=0.0),
    Sampling(temperature=0.7, top_p=0.95, top_k=40, min_p=0.05),
    Sampling(temperature=1.0),
    Sampling(temperature=1.5, top_p=0.8),
    Sampling(temperature=1.0, top_k=3),
    Sampling(temperature=0.3, min_p=0.2, top_k=WIDTH * 2),
]


@pytest.mark.parametrize("seed", range(8))
def test_a_row_is_drawn_as_by_itself(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (len(SETTINGS), WIDTH)).astype(np.float32)
    logits[:, rng.integers(0, WIDTH, 300)] = -np.inf
    samplers = [Sampler(Sampling(**{**_fields(item), "seed": seed})) for item in SETTINGS]
    wanted = [sampler.choose(row.copy()) for sampler, row in zip(samplers, logits, strict=True)]
    numbers = [Sampler(Sampling(seed=seed)).draw()] * len(samplers)
    settings = np.array(
        [
            (sampler.temperature, sampler.top_k, sampler.top_p, np.log(sampler.min_p), number, 0)
            for sampler, number in zip(samplers, numbers, strict=True)
        ],
        np.float32,
    )
    assert draw(torch.from_numpy(logits), settings, torch.from_numpy(settings)).tolist() == wanted


def test_where_no_token_is_left_none_is_drawn() -> None:
    logits = torch.full((2, WIDTH), float("-inf"))
    for temperature in (0.0, 1.0):
        settings = np.array([(temperature, 5, 1, -9, 0.5, 0)] * 2, np.float32)
        assert draw(logits, settings, torch.from_numpy(settings)).tolist() == [-1, -1]


def test_rows_are_masked_by_their_bits_and_closing_tokens_get_their_bonus() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 1, (4, WIDTH)).astype(np.float32)
    bits = rng.integers(-(2**31), 2**31, (4, -(-WIDTH // 32)), dtype=np.int32)
    bonus = rng.normal(0, 1, (2, WIDTH)).astype(np.float32)
    kinds = np.array([UNMASKED, MASKED, FIRST_QUOTE, FIRST_QUOTE + 1], np.int32)
    masked = torch.from_numpy(logits.copy())
    apply_masks(masked, torch.from_numpy(bits), torch.from_numpy(kinds), torch.from_numpy(bonus))
    allowed = np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")[:, :WIDTH].astype(bool)
    added = logits + np.stack([np.zeros(WIDTH), np.zeros(WIDTH), *bonus])
    assert np.array_equal(masked[0].numpy(), logits[0])
    assert np.allclose(masked[1:].numpy(), np.where(allowed, added, -np.inf)[1:])


def _fields(sampling: Sampling) -> dict[str, Any]:
    return {name: getattr(sampling, name) for name in ("temperature", "top_p", "top_k", "min_p")}
