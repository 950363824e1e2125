"""The halves of cases: about the same size, and the same for ever."""

from collections import Counter

from callsmith.evals.cases.sample import half_of


def test_a_case_stays_in_its_half():
    assert [half_of(id) for id in ("bakery", "library", "car", "museum", "")] == [
        "tuning",
        "tuning",
        "held-out",
        "held-out",
        "held-out",
    ]


def test_the_halves_are_about_the_same_size():
    sizes = Counter(half_of(f"case_{number}") for number in range(1000))
    assert sizes.keys() == {"tuning", "held-out"}
    assert abs(sizes["tuning"] - 500) < 80
