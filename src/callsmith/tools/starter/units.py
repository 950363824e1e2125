"""A unit converter: lengths, masses, temperatures, volumes, areas, speeds, times and amounts of data."""

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from callsmith.tools.functions import tool

# A line a unit: its symbol, how many of the first unit's it is, and its other names. Plurals and "meter" are understood anyway.
# A second number is where its zero is. Of two spellings that differ in case only, the earlier line has the others' as well.
_TABLE = {
    "length": """
        m | 1 | metre
        km | 1000 | kilometre
        dm | 0.1 | decimetre
        cm | 0.01 | centimetre
        mm | 0.001 | millimetre
        µm | 1e-6 | micrometre, um, micron
        nm | 1e-9 | nanometre
        in | 0.0254 | inch, inches, ", ″
        ft | 0.3048 | foot, feet, ', ′
        yd | 0.9144 | yard
        mi | 1609.344 | mile, statute mile
        nmi | 1852 | nautical mile, sea mile
        au | 149597870700 | astronomical unit
        ly | 9460730472580800 | light year, lightyear""",
    "mass": """
        kg | 1 | kilogram, kilogramme, kilo
        g | 0.001 | gram, gramme
        mg | 1e-6 | milligram, milligramme
        µg | 1e-9 | microgram, ug, mcg
        t | 1000 | tonne, metric ton
        lb | 0.45359237 | pound, lbm
        oz | 0.028349523125 | ounce
        st | 6.35029318 | stone
        short ton | 907.18474 | us ton
        long ton | 1016.0469088 | imperial ton, uk ton""",
    "temperature": """
        K | 1 | kelvin
        °C | 1 273.15 | c, celsius, centigrade
        °F | 0.5555555555555556 459.67 | f, fahrenheit
        °R | 0.5555555555555556 | rankine""",
    "volume": """
        l | 1 | litre
        ml | 0.001 | millilitre, cc
        cl | 0.01 | centilitre
        dl | 0.1 | decilitre
        hl | 100 | hectolitre
        m³ | 1000 | cubic metre
        dm³ | 1 | cubic decimetre
        cm³ | 0.001 | cubic centimetre, ccm
        in³ | 0.016387064 | cubic inch, cubic inches
        ft³ | 28.316846592 | cubic foot, cubic feet
        gal | 3.785411784 | gallon, us gallon
        qt | 0.946352946 | quart, us quart
        pt | 0.473176473 | pint, us pint
        cup | 0.2365882365 | us cup
        fl oz | 0.0295735295625 | fluid ounce, us fluid ounce, floz
        tbsp | 0.01478676478125 | tablespoon
        tsp | 0.00492892159375 | teaspoon
        imp gal | 4.54609 | imperial gallon, uk gallon
        imp pt | 0.56826125 | imperial pint, uk pint
        bbl | 158.987294928 | barrel, oil barrel""",
    "area": """
        m² | 1 | square metre, sqm, qm
        km² | 1e6 | square kilometre, sqkm
        cm² | 1e-4 | square centimetre
        mm² | 1e-6 | square millimetre
        ha | 10000 | hectare
        a | 100 | are
        ac | 4046.8564224 | acre
        in² | 6.4516e-4 | square inch, square inches
        ft² | 0.09290304 | square foot, square feet, sqft
        yd² | 0.83612736 | square yard
        mi² | 2589988.110336 | square mile""",
    "speed": """
        m/s | 1 | metre per second, mps
        km/h | 0.2777777777777778 | kilometre per hour, kph, kmh, kmph
        mph | 0.44704 | mile per hour, mi/h
        kn | 0.5144444444444445 | knot, kt, nautical mile per hour
        ft/s | 0.3048 | foot per second, feet per second, fps
        km/s | 1000 | kilometre per second""",
    "time": """
        s | 1 | second, sec
        ms | 0.001 | millisecond
        µs | 1e-6 | microsecond, us
        ns | 1e-9 | nanosecond
        min | 60 | minute
        h | 3600 | hour, hr
        d | 86400 | day
        week | 604800 | wk
        month | 2629746 | average month
        year | 31556952 | yr
        decade | 315569520 |
        century | 3155695200 | centuries""",
    "data": """
        B | 8 | byte
        bit | 1 | b
        kB | 8e3 | kilobyte
        MB | 8e6 | megabyte
        GB | 8e9 | gigabyte
        TB | 8e12 | terabyte
        PB | 8e15 | petabyte
        KiB | 8192 | kibibyte
        MiB | 8388608 | mebibyte
        GiB | 8589934592 | gibibyte
        TiB | 8796093022208 | tebibyte
        kbit | 1e3 | kilobit
        Mbit | 1e6 | megabit, Mb
        Gbit | 1e9 | gigabit, Gb
        Tbit | 1e12 | terabit, Tb""",
}
_RESPELLED = (("meter", "metre"), ("liter", "litre"), ("²", "2"), ("³", "3"), ("^", ""), ("μ", "µ"), (".", ""), ("°", " "))
_LEFT_OUT = ("deg", "degree")
_POWERS = {"square": "2", "sq": "2", "squared": "2", "cubic": "3", "cu": "3", "cubed": "3"}


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: how many of the first unit of its quantity it is, and how far its zero is from that of the quantity."""

    symbol: str
    quantity: str
    factor: float
    zero: float = 0.0


@tool(idempotent=True)
def convert_units(amount: float, from_unit: str, to_unit: str) -> str:
    """Convert an amount from one unit to another: length, mass, temperature, volume, area, speed, time, data.

    Args:
        amount: How much it is, for example 26.2.
        from_unit: The unit it is in, for example miles.
        to_unit: The unit that is wanted, for example km.
    """
    source, target = _unit(from_unit), _unit(to_unit)
    if source.quantity != target.quantity:
        about = f"{source.symbol} is a unit of {source.quantity}, {target.symbol} one of {target.quantity}"
        raise ValueError(f"{about}; {source.symbol} can be converted to {_symbols(source.quantity)}")
    base = (amount + source.zero) * source.factor
    if source.quantity == "temperature" and base < -1e-9:
        raise ValueError(f"{amount:.10g} {source.symbol} is below absolute zero")
    converted = base / target.factor - target.zero
    if not math.isfinite(converted):
        raise ValueError("the amount is too large")
    if abs(converted) < abs(base) * 1e-13:  # between zeros that are far apart, this is only what rounding has left
        converted = 0.0 if target.zero else converted
    return f"{amount:.10g} {source.symbol} = {converted:.10g} {target.symbol}"


def _unit(text: str) -> Unit:
    (symbols, spellings), spelled = _known_units(), _spelling(text)
    unit = symbols.get(text.strip()) or spellings.get(spelled)
    if unit is not None:
        return unit
    near = get_close_matches(spelled[:50], spellings, n=1)
    meant = f"; did you mean {spellings[near[0]].symbol}?" if near else "."
    listed = "; ".join(f"{quantity}: {_symbols(quantity)}" for quantity in _TABLE)
    raise ValueError(f"there is no unit {text[:50]!r} here{meant} Known are {listed}")


def _symbols(quantity: str) -> str:
    return ", ".join(unit.symbol for unit in dict.fromkeys(_known_units()[0].values()) if unit.quantity == quantity)


@cache
def _known_units() -> tuple[dict[str, Unit], dict[str, Unit]]:
    """The units by what they may be called: exactly as in the table, and however people spell that."""
    symbols, spellings = dict[str, Unit](), dict[str, Unit]()
    for quantity, lines in _TABLE.items():
        for line in lines.strip().splitlines():
            symbol, numbers, others = (part.strip() for part in line.split("|"))
            unit = Unit(symbol, quantity, *map(float, numbers.split()))
            for name in (symbol, *filter(None, others.split(", "))):
                symbols.setdefault(name, unit)
                spellings.setdefault(_spelling(name), unit)
    return symbols, spellings


def _spelling(name: str) -> str:
    """A name without case, plural, and what else people write in several ways: `m2` for Sq. M, `metre2` for square meters."""
    text = name.casefold()
    for spelling, other in _RESPELLED:
        text = text.replace(spelling, other)
    words = [word.removesuffix("s") if len(word) > 2 else word for word in re.split(r"[\s_-]+", text.strip())]
    power = "".join(_POWERS[word] for word in words if word in _POWERS)
    return " ".join(word for word in words if word not in _POWERS and word not in _LEFT_OUT) + power
