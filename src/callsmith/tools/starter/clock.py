"""A clock: the date and the time in a timezone, by its name, a city, a country or an offset."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from functools import cache
from unicodedata import combining, normalize
from zoneinfo import ZoneInfo, available_timezones

from callsmith.tools.functions import tool

# What people say and the database of timezones does not know.
_ALSO = {
    "America/Los_Angeles": "pst, pdt, pt, pacific, san francisco, seattle, san diego, las vegas, california",
    "America/Denver": "mdt, mt, mountain",
    "America/Chicago": "cst, cdt, ct, central, houston, dallas, texas",
    "America/New_York": "edt, et, eastern, nyc, boston, washington, washington dc, miami, atlanta, philadelphia",
    "America/Sao_Paulo": "rio de janeiro, rio, brasilia",
    "Europe/London": "bst, uk, united kingdom, england, scotland, edinburgh, manchester",
    "Europe/Paris": "cest, france, lyon, marseille",
    "Europe/Berlin": "germany, munich, hamburg, cologne, frankfurt, bonn",
    "Europe/Rome": "italy, milan, naples",
    "Europe/Madrid": "spain, barcelona",
    "Europe/Zurich": "switzerland, geneva, basel, bern",
    "Europe/Vienna": "austria",
    "Europe/Amsterdam": "netherlands, rotterdam",
    "Europe/Stockholm": "sweden",
    "Europe/Kyiv": "ukraine",
    "Asia/Dubai": "abu dhabi",
    "Asia/Kolkata": "ist, india, mumbai, delhi, new delhi, bangalore, bengaluru, chennai",
    "Asia/Shanghai": "china, beijing, shenzhen",
    "Asia/Tokyo": "jst, osaka, kyoto",
    "Asia/Seoul": "kst, korea, south korea",
    "Australia/Sydney": "aest, aedt, canberra",
    "Africa/Johannesburg": "south africa, cape town",
}
_UTC = ("utc", "z", "gmt", "zulu")
_LOCAL = ("", "local", "here")
_OFFSET = re.compile(r"(?:utc|gmt)?([+-])(\d{1,2})(?::?([0-5]\d))?")


@tool(idempotent=True, cache_seconds=0)
def current_time(timezone: str = "local") -> str:
    """Tell the current date and time, here or in another place.

    Args:
        timezone: A city or an IANA name, such as Tokyo or Europe/Paris; UTC; or local, the time of this machine.
    """
    wanted = _spelling(timezone)
    zone = None if wanted in _LOCAL else _zone(wanted, timezone)
    now = datetime.now(UTC).astimezone(zone)  # None: the zone of this machine
    offset = f"UTC{now:%z}"
    name = now.tzname() or ""
    known = name if name.isalpha() else ""  # some zones have only an offset for a name
    return " ".join(filter(None, (f"{now:%A, %d %B %Y, %H:%M:%S}", known, f"({offset[:6]}:{offset[6:8]})")))


def _zone(wanted: str, text: str) -> tzinfo:
    if wanted in _UTC:
        return UTC
    if offset := _OFFSET.fullmatch(wanted.replace(" ", "")):
        sign, hours, minutes = offset.groups()
        ahead = timedelta(hours=int(hours), minutes=int(minutes or 0))
        if ahead < timedelta(days=1):
            return timezone(-ahead if sign == "-" else ahead)
    zones = _zones()
    for name in (wanted, wanted.partition(",")[0].strip(), wanted.removesuffix(" time").removesuffix(" standard")):
        if name in zones:
            return ZoneInfo(zones[name])
    near = [zones[name] for name in get_close_matches(wanted[:100], zones, n=3)]
    meant = f"; did you mean {' or '.join(dict.fromkeys(near))}?" if near else "."
    raise ValueError(f"there is no timezone {text[:100]!r}{meant} Use a city or an IANA name such as Europe/Paris")


@cache
def _zones() -> Mapping[str, str]:
    """The timezones by everything they may be called: their names, and their cities alone."""
    names = sorted(available_timezones())
    zones = {_spelling(name.rpartition("/")[2]): name for name in reversed(names)}  # of two cities the first in the alphabet
    for name, others in _ALSO.items():
        if name in names:
            zones |= dict.fromkeys(others.split(", "), name)
    return zones | {_spelling(name): name for name in names}


def _spelling(name: str) -> str:
    """A name without case, accents, dots and underscores."""
    plain = "".join(letter for letter in normalize("NFKD", name) if not combining(letter))
    return " ".join(plain.casefold().replace("_", " ").replace(".", "").split())
