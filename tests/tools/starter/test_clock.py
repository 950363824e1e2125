"""The clock: places by whatever people call them."""

import re

import pytest

from callsmith.tools.starter.clock import current_time

SHAPE = re.compile(r"\w+day, \d\d \w+ \d{4}, \d\d:\d\d:\d\d( \w+)? \(UTC[+-]\d\d:\d\d\)")


@pytest.mark.parametrize(
    "place", ["Europe/Paris", "europe/paris", "Paris", " PARIS ", "Paris, France", "France", "CEST", "Munich", "Zürich", "CET"]
)
def test_a_zone_is_known_by_its_name_a_city_a_country_or_an_abbreviation(place: str):
    assert current_time(place).endswith(("CET (UTC+01:00)", "CEST (UTC+02:00)"))


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        ("UTC", "UTC (UTC+00:00)"),
        ("Z", "UTC (UTC+00:00)"),
        ("Tokyo", "JST (UTC+09:00)"),
        ("Japan", "JST (UTC+09:00)"),
        ("New Delhi", "IST (UTC+05:30)"),
        ("São Paulo", "(UTC-03:00)"),
        ("sao_paulo", "(UTC-03:00)"),
        ("UTC+5:30", "(UTC+05:30)"),
        ("GMT-3", "(UTC-03:00)"),
        ("+0200", "(UTC+02:00)"),
    ],
)
def test_the_offset_is_told(place: str, offset: str):
    assert current_time(place).endswith(offset)


@pytest.mark.parametrize("place", ["New York", "new_york", "NYC", "Boston", "Eastern Time", "Eastern Standard Time", "EDT"])
def test_american_times_are_known_by_what_they_are_called(place: str):
    assert current_time(place).endswith(("EST (UTC-05:00)", "EDT (UTC-04:00)"))


def test_without_a_zone_it_is_the_time_here():
    assert SHAPE.fullmatch(current_time())
    assert current_time()[-11:] == current_time("local")[-11:] == current_time("")[-11:]


@pytest.mark.parametrize(
    ("place", "hint"), [("Pariss", "did you mean Europe/Paris"), ("xyzzy", "such as Europe/Paris"), ("+99", "IANA")]
)
def test_an_unknown_zone_is_told_with_one_that_may_be_meant(place: str, hint: str):
    with pytest.raises(ValueError, match=hint):
        current_time(place)
