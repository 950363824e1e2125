"""The unit converter: amounts, spellings, and what is said of units that do not fit."""

from collections import defaultdict

import pytest

from callsmith.tools.starter import units
from callsmith.tools.starter.units import convert_units


@pytest.mark.parametrize(
    ("amount", "source", "target", "expected"),
    [
        (26.2, "miles", "kilometers", "26.2 mi = 42.1648128 km"),
        (5, "feet", "cm", "5 ft = 152.4 cm"),
        (1, "light-years", "km", "1 ly = 9.460730473e+12 km"),
        (2, "lbs", "kg", "2 lb = 0.90718474 kg"),
        (1, "metric ton", "short tons", "1 t = 1.102311311 short ton"),
        (100, "°C", "°F", "100 °C = 212 °F"),
        (32, "degrees Fahrenheit", "celsius", "32 °F = 0 °C"),
        (-40, "F", "C", "-40 °F = -40 °C"),
        (0, "deg C", "kelvin", "0 °C = 273.15 K"),
        (1, "gallon", "litres", "1 gal = 3.785411784 l"),
        (1, "Fl. Oz.", "ml", "1 fl oz = 29.57352956 ml"),
        (1, "cubic meters", "l", "1 m³ = 1000 l"),
        (1, "square foot", "sq. m", "1 ft² = 0.09290304 m²"),
        (1, "acres", "m^2", "1 ac = 4046.856422 m²"),
        (100, "km/h", "miles per hour", "100 km/h = 62.13711922 mph"),
        (1, "metres per second", "kph", "1 m/s = 3.6 km/h"),
        (3, "hours", "ms", "3 h = 10800000 ms"),
        (2, "weeks", "days", "2 week = 14 d"),
        (1, "GiB", "GB", "1 GiB = 1.073741824 GB"),
        (8, "Mb", "MB", "8 Mbit = 1 MB"),
        (1, "mb", "KB", "1 MB = 1000 kB"),
        (1e-9, "km", "ly", "1e-09 km = 1.057000834e-22 ly"),
        (0, "m", "ft", "0 m = 0 ft"),
    ],
)
def test_amounts_are_converted_however_the_units_are_spelled(amount: float, source: str, target: str, expected: str):
    assert convert_units(amount, source, target) == expected


KNOWN = sorted({unit.symbol: unit for unit in units._known_units()[0].values()}.values(), key=lambda unit: unit.symbol)


@pytest.mark.parametrize("unit", KNOWN, ids=lambda unit: unit.symbol)
def test_every_unit_goes_to_the_first_of_its_quantity_and_back(unit: units.Unit):
    first = next(symbol for symbol in units._known_units()[0].values() if symbol.quantity == unit.quantity)
    there = convert_units(300, unit.symbol, first.symbol).split(" = ")[1].removesuffix(f" {first.symbol}")
    back = convert_units(float(there), first.symbol, unit.symbol).split(" = ")[1].removesuffix(f" {unit.symbol}")
    assert float(back) == pytest.approx(300, rel=1e-8)


def test_two_units_share_a_spelling_only_where_case_tells_them_apart():
    meant = defaultdict[str, set[str]](set)
    for name, unit in units._known_units()[0].items():
        meant[units._spelling(name)].add(unit.symbol)
    assert {name: units for name, units in meant.items() if len(units) > 1} == {
        "b": {"B", "bit"},
        "mb": {"MB", "Mbit"},
        "gb": {"GB", "Gbit"},
        "tb": {"TB", "Tbit"},
    }


def test_an_unknown_unit_is_told_with_those_that_are_known():
    with pytest.raises(ValueError, match=r"no unit 'furlong' here\. Known are length: m, km, .*; mass: kg, .*; data: B, bit"):
        convert_units(1, "furlong", "m")
    with pytest.raises(ValueError, match="did you mean km"):
        convert_units(1, "kilometrs", "m")


def test_units_of_different_quantities_are_told_with_those_that_fit():
    with pytest.raises(ValueError, match=r"km is a unit of length, kg one of mass; km can be converted to m, km, .*, ly$"):
        convert_units(1, "km", "kg")


@pytest.mark.parametrize(("amount", "source", "why"), [(-300, "C", "below absolute zero"), (1e308, "K", "too large")])
def test_an_amount_that_cannot_be_is_told(amount: float, source: str, why: str):
    with pytest.raises(ValueError, match=why):
        convert_units(amount, source, "F")
