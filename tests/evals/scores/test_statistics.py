"""Intervals and tests, held against values that were published or are computed by hand."""

from fractions import Fraction

import pytest

from callsmith.evals.scores.statistics import Paired, Share


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilsons_interval_is_the_published_one(right: int, n: int, low: float, high: float):
    interval = Share(right, n).interval
    assert (round(interval[0], 4), round(interval[1], 4)) == (
        low,
        high,
    )  # Newcombe 1998, two-sided intervals for the single proportion


@pytest.mark.parametrize(("counts", "low", "high"), [((36, 2, 12, 0), 0.0569, 0.3404), ((1, 1, 7, 12), 0.0256, 0.5069)])
def test_the_interval_of_a_paired_difference_is_the_published_one(counts: tuple[int, ...], low: float, high: float):
    interval = Paired(*counts).interval  # Newcombe 1998, method 10; Fagerland, Lydersen and Laake 2014
    assert (round(interval[0], 4), round(interval[1], 4)) == (low, high)


def test_exchanging_the_two_turns_the_difference_round():
    one, other = Paired(50, 3, 9, 38), Paired(50, 9, 3, 38)
    assert one.difference == -other.difference == 0.06
    assert one.interval == pytest.approx((-other.interval[1], -other.interval[0]))
    assert one.p == other.p


def test_mcnemars_test_is_exact():
    # 1 against 7: both tails of 8 throws, (1 + 8) of 256 each.
    assert Paired(5, 1, 7, 5).p == Fraction(18, 256)
    assert Paired(5, 0, 0, 5).p == 1.0
    assert Paired(5, 4, 4, 5).p == 1.0


def test_nothing_asked_says_nothing():
    assert Share(0, 0).interval == (0.0, 1.0)
    assert Paired(0, 0, 0, 0).interval == (-1.0, 1.0)
