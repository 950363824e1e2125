"""Durations and sizes as people write them: `5m`, `1h30m`, `8GB`."""

import re
from math import isfinite

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)")
_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", re.IGNORECASE)
NEVER = "never"


def parse_duration(text: str) -> float | None:
    """The seconds of `90`, `5m` or `1h30m`; None, which is no end at all, of `never` or a negative one. Else a ValueError."""
    stripped = text.strip()
    if stripped == NEVER:
        return None
    digits = stripped.removeprefix("-")
    try:
        seconds = float(digits)
    except ValueError:
        if not digits or _DURATION.sub("", digits):
            raise ValueError(f"{text!r} is no duration; expected seconds, or one like 5m, 1h30m or never") from None
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(digits))
    if not isfinite(seconds):
        raise ValueError(f"{text!r} is no duration; expected seconds, or one like 5m, 1h30m or never")
    return None if stripped.startswith("-") and seconds else seconds


def parse_size(text: str) -> int:
    """The bytes of `8GB`, `512MiB` or `1000`; else a ValueError."""
    if not (match := _SIZE.fullmatch(text.strip())):
        raise ValueError(f"{text!r} is no size; expected bytes, or one like 8GB or 512MiB")
    number, unit = match.groups()
    if unit.lower() == "i":
        raise ValueError(f"{text!r} is no size; expected bytes, or one like 8GB or 512MiB")
    return int(float(number) * _BYTES[unit.lower()])


def write_size(count: int) -> str:
    """A number of bytes as people read it: `1.5 GB`."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
