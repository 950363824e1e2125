"""The demonstration tools."""

import pytest

from callsmith.cli.inputs.demo_tools import calculate, get_time, get_weather


@pytest.mark.parametrize(
    ("expression", "value"),
    [("17 * 23 + 4", "395"), ("2 ^ 10", "1024"), ("-(3 - 5) / 4", "0.5"), ("7 // 2 % 2", "1"), ("2 ** 0.5", "1.41421356237")],
)
def test_arithmetic_is_computed(expression: str, value: str):
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["__import__('os')", "open('x')", "a + 1", "'a' * 9", "9 ** 9 ** 9", "(-1) ** 0.5", "1 +", "True + 1", "[1]", ""],
)
def test_nothing_but_arithmetic_is_computed(expression: str):
    with pytest.raises(ValueError):
        calculate(expression)


def test_a_product_cannot_grow_without_bounds():
    with pytest.raises(ValueError, match="too large"):
        calculate("*".join(["9 ** 900"] * 50))


@pytest.mark.parametrize("timezone", ["Europe/Paris", "europe/paris", "Paris"])
def test_the_time_is_known_by_zone_or_city(timezone: str):
    assert get_time(timezone).endswith(("CET", "CEST"))


def test_an_unknown_timezone_is_told():
    with pytest.raises(ValueError, match="Europe/Paris"):
        get_time("Atlantis")


def test_the_weather_is_made_up_and_says_so():
    assert get_weather("Paris") == get_weather("paris ") | {"city": "Paris"}
    assert "made up" in get_weather("Paris")["note"]
