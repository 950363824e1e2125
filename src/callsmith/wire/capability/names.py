"""Names and versions of capabilities: `rag.query@1.0`.

A version is (major, minor). A call that asks for A.B is answered by a provider that offers X.Y if X == A and Y >= B: minor
versions only add.
"""

import re
from functools import lru_cache
from typing import TypeAlias, cast

from callsmith.core.types.json_types import Json
from callsmith.wire.capability.errors import BusError

Version: TypeAlias = tuple[int, int]

NAME = re.compile(r"[a-z][a-z0-9_]{0,31}(\.[a-z0-9][a-z0-9_]{0,63}){1,6}", re.ASCII)
_VERSION = re.compile(r"(?:>=)?(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})", re.ASCII)

# The first parts of names that are allocated; everything else is experimental.
PREFIXES = frozenset(
    {"auth", "chat", "community", "embed", "federation", "file", "img", "llm", "market", "ocr", "rag", "rerank", "stt", "trans"}
    | {"tts"}
)
EXPERIMENTAL = "experimental"


_LONGEST = 512  # of what is looked up here
_match_name = lru_cache(maxsize=1024)(NAME.fullmatch)
_match_version = lru_cache(maxsize=1024)(_VERSION.fullmatch)


def check_name(name: object) -> str:
    """The name, if it is one of a capability; a BusError bad_request if not."""
    if not isinstance(name, str) or len(name) > _LONGEST or not _match_name(name):
        raise BusError("bad_request", f"{str(name)[:100]!r} is no name of a capability, such as rag.query")
    return name


def parse_version(text: object) -> Version:
    """(1, 0) of "1.0" or ">=1.0"; a BusError bad_request for anything else."""
    match = _match_version(text) if isinstance(text, str) and len(text) <= _LONGEST else None
    if match is None:
        raise BusError("bad_request", f"{str(text)[:100]!r} is no version, such as 1.0")
    return int(match[1]), int(match[2])


def parse_reference(text: object) -> tuple[str, Version]:
    """The name and the version of "rag.query@1.0"."""
    name, at, version = text.partition("@") if isinstance(text, str) else ("", "", "")
    if not at:
        raise BusError("bad_request", f"{str(text)[:100]!r} is no capability with its version, such as rag.query@1.0")
    return check_name(name), parse_version(version)


def parse_target(capability: object, version: object = None) -> tuple[str, Version]:
    """The name and the version of "rag.query@1.0", or of "rag.query" whose version, "1.0" or [1, 0], is given beside it."""
    if version is None or not isinstance(capability, str):
        return parse_reference(capability)
    given = parse_version(".".join(map(str, cast(list[Json], version))) if isinstance(version, list) else version)
    name, named = parse_reference(capability) if "@" in capability else (check_name(capability), given)
    if named != given:
        raise BusError("bad_request", f"{capability[:100]!r} is of another version than {write_version(given)}")
    return name, given


def write_version(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def write_reference(name: str, version: Version) -> str:
    return f"{name}@{version[0]}.{version[1]}"


def satisfies(offered: Version, requested: Version) -> bool:
    """Whether a provider of the one version may answer a call of the other."""
    return offered[0] == requested[0] and offered[1] >= requested[1]
