"""How large the parts of a request may be. They are measured before they are parsed, in every dialect at this one place."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from callsmith.core.errors import UsageError
from callsmith.server.settings import Requests

_Check: TypeAlias = Callable[[str, memoryview], None]

# A string, or one that does not end: a text is passed over once, whatever it is. And a piece of a text, cut outside of strings.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_PIECE: Final = re.compile(rb"(?:[^\"]++|%b){1,2000}+" % _STRING.pattern, re.DOTALL)
_NESTED: Final = frozenset({"options", "structured_outputs"})  # fields whose own fields are measured as well
_MESSAGES: Final = ("messages", "input")
_TOOLS: Final = ("tools", "functions")
_STOPS: Final = ("stop", "stop_sequences")
# What says what an answer must be: grammars are made of it.
_OUTPUTS: Final = (
    "response_format", "guided_json_schema", "json_schema", "guided_json", "guided_choice", "guided_regex", "guided_grammar",
    "grammar", "format", "text", "output_config", "output_format", "json", "choice", "regex",
)  # fmt: skip
_NAMES: Final = ("tool_choice", "server_tools", "mcp_servers", "include", "logit_bias", "metadata")

_array = msgspec.json.Decoder(list[msgspec.Raw])
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def has_more_values(text: bytes | bytearray, most: int) -> bool:
    """Whether a JSON text has more values than that: one, and one more behind each comma and bracket outside of strings.

    It is read in pieces: other threads go on in between.
    """
    if len(text) <= 2 * most or _count_marks(text) < most:
        return False
    count, at = 1, 0
    while at < len(text) and count <= most:
        piece = _PIECE.match(text, at)
        assert piece is not None  # anything but a quote, or a string
        count += _count_marks(_STRING.sub(b"", piece[0]))
        at = piece.end()
    return count > most


def _count_marks(text: bytes | bytearray) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


class RequestLimits:
    """Complains, by a UsageError that names field and limit, about what is larger than the settings allow.

    `wrappers` are fields that hold a request in another one (`Dialect.wrappers`).
    """

    def __init__(self, limits: Requests, wrappers: Iterable[str] = ()) -> None:
        self._limits = limits
        self._wrappers = frozenset(wrappers)
        self._checks: Mapping[str, _Check] = {
            **dict.fromkeys(_MESSAGES, self._check_messages),
            **dict.fromkeys(_TOOLS, self._check_tools),
            **dict.fromkeys(_STOPS, self._check_stops),
            **dict.fromkeys(_OUTPUTS, self._at_most(limits.output_bytes)),
            **dict.fromkeys(_NAMES, self._at_most(limits.field_bytes)),
        }

    def check_body(self, body: bytes | bytearray) -> None:
        """Complain about a body of too many values."""
        if has_more_values(body, self._limits.values):
            raise UsageError(f"the body: has more than the {self._limits.values} JSON values that are allowed")

    def check_fields(self, parts: Mapping[str, msgspec.Raw], path: str = "") -> None:
        """Complain about a field that is too large."""
        for name, raw in parts.items():
            if name in self._wrappers and _is(memoryview(raw), b"{"):
                self._check_wrapped(_object.decode(raw), f"{path}{name}.")
            elif check := self._checks.get(name):
                check(path + name, memoryview(raw))
            elif name in _NESTED and _is(memoryview(raw), b"{"):
                self.check_fields(_object.decode(raw), f"{name}.")

    def _check_wrapped(self, parts: Mapping[str, msgspec.Raw], path: str) -> None:
        """The same for a request in another one. What its other fields mean, only whoever it is for knows."""
        common = {*self._wrappers, *_MESSAGES, *_TOOLS, *_STOPS}
        self.check_fields({name: raw for name, raw in parts.items() if name in common}, path)

    def _check_messages(self, name: str, raw: memoryview) -> None:
        if _may_have(raw, self._limits.messages):
            _check_count(name, _array.decode(raw), self._limits.messages)

    def _check_tools(self, name: str, raw: memoryview) -> None:
        limits = self._limits
        if has_more_values(bytes(raw), limits.schema_values):
            raise UsageError(f"{name}: have more than the {limits.schema_values} JSON values that are allowed", field=name)
        if _may_have(raw, limits.tools) or (raw.nbytes > limits.tool_bytes and _is(raw, b"[")):
            tools = _check_count(name, _array.decode(raw), limits.tools)
            for index, tool in enumerate(tools):
                _check_bytes(f"{name}.{index}", memoryview(tool), limits.tool_bytes)

    def _check_stops(self, name: str, raw: memoryview) -> None:
        if not _is(raw, b"["):
            _check_bytes(name, raw, self._limits.stop_bytes)
        elif raw.nbytes > min(self._limits.stops, self._limits.stop_bytes):
            for index, stop in enumerate(_check_count(name, _array.decode(raw), self._limits.stops)):
                _check_bytes(f"{name}.{index}", memoryview(stop), self._limits.stop_bytes)

    def _at_most(self, most: int) -> _Check:
        return lambda name, raw: _check_bytes(name, raw, most)


def _is(raw: memoryview, opening: bytes) -> bool:
    return bytes(raw[:1]) == opening


def _may_have(raw: memoryview, most: int) -> bool:
    """Whether this may be an array of more items than that: each takes two characters."""
    return raw.nbytes > 2 * most and _is(raw, b"[")


def _check_count(name: str, items: list[msgspec.Raw], most: int) -> list[msgspec.Raw]:
    if len(items) > most:
        raise _too_large(name, f"{len(items)} entries", most)
    return items


def _check_bytes(name: str, raw: memoryview, most: int) -> None:
    if raw.nbytes > most:
        raise _too_large(name, f"{raw.nbytes} bytes", most)


def _too_large(name: str, found: str, most: int) -> UsageError:
    return UsageError(f"{name}: has {found}, more than the {most} that are allowed", field=name)
