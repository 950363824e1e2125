"""How the next token is chosen."""

from typing import Any, ClassVar

import pytest

pytest.importorskip("numpy")
pytest.importorskip("llguidance")

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from callsmith.core.errors import ModelError, UsageError
from callsmith.core.values import Sampling, TokenBias
from callsmith.engines.decoding.sequence import Adjustment, Sampler, Sequence, check_bias
from callsmith.engines.port import with_defaults
from tests.effort import tries

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
    ("sampling", "tokens"),
    [
        (Sampling(temperature=1.0, seed=1, top_k=2), {1, 2}),
        (Sampling(temperature=1.0, seed=1, top_p=0.75), {1, 2}),
        (Sampling(temperature=1.0, seed=1, top_p=0.85), {1, 2, 3}),
        (Sampling(temperature=1.0, seed=1, top_p=0.0), {1}),
        (Sampling(temperature=1.0, seed=1, min_p=0.15), {1, 2, 3}),
        (Sampling(temperature=1.0, seed=1, typical_p=0.2), {2}),  # it tells about as much as is to be expected
        (Sampling(temperature=1.0, seed=1, typical_p=0.7), {1, 2}),
    ],
)
def test_the_unlikely_can_be_cut_off(sampling: Sampling, tokens: set[int]) -> None:
    assert set(drawn(sampling)) == tokens


def test_the_same_seed_draws_the_same() -> None:
    first, second, other = (Sampler(Sampling(temperature=1.0, seed=seed)) for seed in (-5, -5, 6))
    draws = [[sampler.choose(LOGITS) for _ in range(50)] for sampler in (first, second, other)]
    assert draws[0] == draws[1] != draws[2]


def test_what_was_asked_for_goes_before_the_defaults() -> None:
    sampling = with_defaults(Sampling(temperature=0.0, stop=("x",)), Sampling(temperature=0.6, top_k=20))
    assert sampling == Sampling(temperature=0.0, top_k=20, stop=("x",))


# -- under a constraint


class Allowed:
    """A constraint that allows some tokens, and counts how often it is asked for all of them."""

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        self.mask, self.asked_for_all = mask, 0

    def allows(self, token: int) -> bool:
        return bool(self.mask[token])

    def among(self, tokens: NDArray[np.intp]) -> NDArray[np.bool_]:
        return self.mask[tokens]

    def tokens(self) -> NDArray[np.intp]:
        self.asked_for_all += 1
        return np.flatnonzero(self.mask)


@pytest.mark.req("R69")
@pytest.mark.req("R74")
@settings(max_examples=tries(50, 200), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    share=st.sampled_from([0.002, 0.05, 0.5, 0.98]),
    spread=st.sampled_from([0.0, 0.5, 3.0, 20.0]),
    sampling=st.builds(
        Sampling,
        temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
        top_k=st.sampled_from([None, 1, 5, 40]),
        top_p=st.sampled_from([None, 0.0, 0.3, 0.95]),
        min_p=st.sampled_from([None, 0.05, 0.5]),
        seed=st.integers(0, 1000),
    ),
)
def test_a_token_is_chosen_as_if_all_that_is_not_allowed_had_been_ruled_out_first(
    seed: int, share: float, spread: float, sampling: Sampling
) -> None:
    random = np.random.default_rng(seed)
    logits = (random.standard_normal(1000) * spread).astype(np.float32).round(1)  # rounded: there are ties
    mask = random.random(1000) < share
    mask[random.integers(1000)] = True
    ruled_out = np.where(mask, logits, np.float32(-np.inf))
    looked_up, naive = Sampler(sampling), Sampler(sampling)
    held: Any = Allowed(mask)
    for _ in range(5):
        assert looked_up.choose(logits, held) == naive.choose(ruled_out)


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 10_000, 49_152])
@pytest.mark.parametrize("spread", [0.0, 0.2, 3.0])
def test_the_likely_tokens_of_a_large_vocabulary_are_all_found(size: int, spread: float) -> None:
    random = np.random.default_rng(size)
    logits = (random.standard_normal(size) * spread).astype(np.float32).round(1)
    sampler = Sampler(Sampling(temperature=1.0, min_p=0.1))
    likely, best = sampler._find_likely(logits)  # pyright: ignore[reportPrivateUsage]
    assert likely.tolist() == np.flatnonzero(logits >= float(logits.max()) + np.log(0.1)).tolist()
    assert best == int(logits.argmax())
    assert Sampler(Sampling(temperature=0.0)).choose(logits) == best


@pytest.mark.req("R227")
def test_where_the_likeliest_is_allowed_nobody_asks_for_all_that_is() -> None:
    held: Any = Allowed(np.array([True, True, False, True, True]))
    assert Sampler(Sampling(temperature=1.0, top_k=2, seed=1)).choose(LOGITS, held) in (1, 3)
    assert not held.asked_for_all
    held = Allowed(np.array([True, False, False, True, True]))
    assert Sampler(Sampling(temperature=0.0)).choose(LOGITS, held) == 3
    assert held.asked_for_all == 1


def test_where_nothing_is_allowed_that_is_an_error_and_not_a_token() -> None:
    held: Any = Allowed(np.zeros(5, np.bool_))
    with pytest.raises(ModelError, match="no token"):
        Sampler(Sampling(temperature=0.0)).choose(LOGITS, held)


# -- where the room runs out


class Digits:
    """A constraint that allows any digits: `whole` says after how many they may be all."""

    ended = False

    def __init__(self, whole: int) -> None:
        self._whole, self._said = whole, 0

    @property
    def active(self) -> "Digits | None":
        return self

    @property
    def may_end(self) -> bool:
        return self._said >= self._whole

    def allows(self, token: int) -> bool:
        return True

    def among(self, tokens: NDArray[np.intp]) -> NDArray[np.bool_]:
        return np.ones(len(tokens), np.bool_)

    def find_forced(self) -> list[int]:
        return []

    def consume(self, token: int) -> None:
        self._said += 1


class Vocabulary:
    """Ten digits, none of which ends anything."""

    says = tuple(str(digit).encode() for digit in range(10))
    special: ClassVar[dict[int, str]] = {}
    ends = frozenset[int]()
    closing = (np.zeros(10, np.float32),) * 2


@pytest.mark.parametrize(("whole", "size", "reason"), [(1, 5, "stop"), (7, 7, "stop"), (11, 10, "length")])
def test_near_its_limit_an_answer_that_is_whole_begins_nothing_more(whole: int, size: int, reason: str) -> None:
    stub: Any = Vocabulary()
    constraint: Any = Digits(whole)
    sequence = Sequence(stub, Sampling(max_tokens=10, temperature=1.0), room=100, constraint=constraint)
    sequence.begin()
    while sequence.finished is None:
        sequence.advance(np.zeros(10, np.float32))
    assert (sequence.size, sequence.finished) == (size, reason)


# -- penalties and biases


def adjusted(sampling: Sampling, *answer: int, prompt: tuple[int, ...] = ()) -> list[float]:
    adjustment = Adjustment(sampling, prompt)
    for token in answer:
        adjustment.count(token)
    logits = np.array([2.0, -2.0, 0.0, 4.0], np.float32)
    adjustment.apply(logits)
    return [round(float(logit), 3) for logit in logits]


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(presence_penalty=0.5), [1.5, -2.5, 0.0, 4.0]),
        (Sampling(frequency_penalty=0.5), [1.0, -2.5, 0.0, 4.0]),
        (Sampling(presence_penalty=0.5, frequency_penalty=-0.5), [2.5, -2.0, 0.0, 4.0]),
        (Sampling(repetition_penalty=2.0), [1.0, -4.0, 0.0, 2.0]),  # the prompt's token, too
        (Sampling(repetition_penalty=2.0, penalty_window=2), [1.0, -4.0, 0.0, 4.0]),
        (Sampling(presence_penalty=1.0, penalty_window=1), [2.0, -3.0, 0.0, 4.0]),
        (Sampling(presence_penalty=1.0, repetition_penalty=2.0, penalty_window=0), [2.0, -2.0, 0.0, 4.0]),
        (Sampling(logit_bias=(TokenBias(2, 5.0), TokenBias(0, -100.0))), [-98.0, -2.0, 5.0, 4.0]),
    ],
)
def test_logits_are_changed_as_penalties_and_biases_say(sampling: Sampling, expected: list[float]) -> None:
    assert adjusted(sampling, 0, 0, 1, prompt=(3,)) == expected


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0, penalty_window=64)]
)
def test_where_nothing_is_asked_for_there_is_nothing_to_apply(sampling: Sampling) -> None:
    stub: Any = Vocabulary()
    assert not Sequence(stub, sampling, room=9, prompt=[1, 2, 3]).needs_logits


def test_a_bias_on_a_token_that_is_not_there_is_refused() -> None:
    check_bias(Sampling(logit_bias=(TokenBias(9, 1.0),)), 10)
    with pytest.raises(UsageError, match="no token 10: they are numbered from 0 to 9"):
        check_bias(Sampling(logit_bias=(TokenBias(10, 1.0),)), 10)


class Forcing(Digits):
    """Digits, of which the first is followed by two that are forced."""

    @property
    def active(self) -> None:
        return None

    def find_forced(self) -> list[int]:
        return [7, 7] if self._said == 1 else []


def test_tokens_that_the_grammar_forces_count_for_penalties() -> None:
    stub: Any = Vocabulary()
    constraint: Any = Forcing(11)
    sampling = Sampling(max_tokens=4, temperature=0.0, presence_penalty=2.0)
    sequence = Sequence(stub, sampling, room=100, constraint=constraint)
    sequence.begin()
    logits = np.array([0, 0, 0, 0, 0, 2, 0, 3, 0, 1.5], np.float32)
    texts: list[str] = []
    while sequence.finished is None:
        texts += [piece.text for piece in sequence.advance(logits.copy())]
    assert texts == ["777", "5"]  # the third of 3, but penalised
