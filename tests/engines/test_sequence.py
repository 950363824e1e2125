"""How the next token is chosen."""

import pytest

pytest.importorskip("numpy")
pytest.importorskip("llguidance")

import numpy as np

from callsmith.core.values import Sampling
from callsmith.engines.sequence import Sampler, settled

LOGITS = np.log(np.array([0.05, 0.5, 0.3, 0.1, 0.05], np.float32))


def drawn(sampling: Sampling, times: int = 2000) -> dict[int, float]:
    sampler = Sampler(sampling)
    tokens, counts = np.unique([sampler.choose(LOGITS) for _ in range(times)], return_counts=True)
    return {int(token): count / times for token, count in zip(tokens, counts, strict=True)}


def test_at_temperature_zero_the_likeliest_is_chosen() -> None:
    assert drawn(Sampling(temperature=0.0), 10) == {1: 1.0}


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    shares = drawn(Sampling(temperature=1.0, seed=1))
    assert shares[1] == pytest.approx(0.5, abs=0.05)
    assert shares[2] == pytest.approx(0.3, abs=0.05)
    assert len(shares) == 5


@pytest.mark.parametrize(
    ("sampling", "left"),
    [
        (Sampling(temperature=1.0, seed=1, top_k=2), {1, 2}),
        (Sampling(temperature=1.0, seed=1, top_p=0.75), {1, 2}),
        (Sampling(temperature=1.0, seed=1, top_p=0.85), {1, 2, 3}),
        (Sampling(temperature=1.0, seed=1, top_p=0.0), {1}),
        (Sampling(temperature=1.0, seed=1, min_p=0.15), {1, 2, 3}),
    ],
)
def test_the_unlikely_can_be_cut_off(sampling: Sampling, left: set[int]) -> None:
    assert set(drawn(sampling)) == left


def test_the_same_seed_draws_the_same() -> None:
    first, second, other = (Sampler(Sampling(temperature=1.0, seed=seed)) for seed in (-5, -5, 6))
    draws = [[sampler.choose(LOGITS) for _ in range(50)] for sampler in (first, second, other)]
    assert draws[0] == draws[1] != draws[2]


def test_what_was_asked_for_goes_before_the_defaults() -> None:
    sampling = settled(Sampling(temperature=0.0, stop=("x",)), Sampling(temperature=0.6, top_k=20))
    assert sampling == Sampling(temperature=0.0, top_k=20, stop=("x",))
