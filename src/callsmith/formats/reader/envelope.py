"""Reading a call's JSON envelope: `{"name": …, "arguments": …}`, keys in any order."""

import json

from callsmith.formats.algebra import ARGS, ID, JSON, NAME, Hole, Obj
from callsmith.formats.reader.call_state import FENCES, CallState
from callsmith.formats.reader.literals import NAME_LIKE
from callsmith.formats.reader.markers import SPECIAL_MARK, closers_of
from callsmith.formats.reader.source import Incremental, Mismatch, stops
from callsmith.formats.reader.typed import ARGS_KEYS, parse_json

COLON = stops((":",))
NAME_KEYS = ("name", "tool_name")


class EnvelopeReader:
    """Reads the envelope `node` of a call. Arguments that come before the name wait in a buffer until the name is known."""

    __slots__ = ("_buffered", "_call", "_declared", "_source")

    def __init__(self, call: CallState, node: Obj) -> None:
        self._call = call
        self._source = call.source
        self._declared = dict(node.fields)
        self._buffered: str | None = None

    def read(self) -> Incremental[None]:
        """Read the whole object, from its opening brace."""
        call, source = self._call, self._source
        yield from call.literals.skip_markers((*FENCES, "["), "wrapped")
        if (yield from source.peek()) != "{":
            raise Mismatch("expected '{'")
        source.pos += 1
        depth = 1
        if (yield from source.peek()) == "{":
            call.literals.repair("doubled-braces")
            source.pos += 1
            depth = 2
        while depth:
            char = yield from source.peek()
            if char == "}":
                source.pos += 1
                depth -= 1
            elif char == ",":
                source.pos += 1
            elif call.has_arguments and (yield from source.at(closers_of(call.part))):
                call.literals.repair("missing-close")
                break
            else:
                depth += yield from self._read_field()
        self._finish()

    def _read_field(self) -> Incremental[int]:
        """Read a key and its value; 1 where the value is an object around the call, of which only the brace was read."""
        call, source = self._call, self._source
        key = yield from self._read_key()
        if (yield from source.peek()) != ":":
            raise Mismatch("expected ':'")
        source.pos += 1
        meaning = self._meaning(key)
        if meaning is None and key == "function":
            if (yield from source.peek()) == "{":
                call.literals.repair("wrapped")
                source.pos += 1
                return 1
            meaning = None if call.name else NAME
        yield from self._read_value(meaning)
        return 0

    def _read_key(self) -> Incremental[str]:
        call = self._call
        char = yield from self._source.peek()
        if char in "\"'":
            return json.loads((yield from call.read_buffered()).replace(SPECIAL_MARK, ""))
        if not call.is_marked or not char.isalpha():
            raise Mismatch("a key is missing")
        call.literals.repair("bare-keys")
        return (yield from self._source.read_word(COLON, NAME_LIKE))

    def _meaning(self, key: str) -> Hole | None:
        """What is under a key: what the format declares, or what other families keep under it; None: nothing of the call."""
        call, declared = self._call, self._declared
        if key in declared:
            return declared[key]
        if NAME in declared:  # the key itself is the name
            if not call.name and NAME_LIKE.fullmatch(key):
                call.name = key
                return ARGS
            return None
        if key in ARGS_KEYS:
            call.literals.repair("other-key")
            return ARGS
        if key in NAME_KEYS and not call.name:
            call.literals.repair("other-key")
            return NAME
        if key in ("id", "tool_call_id"):
            return ID
        if not call.is_marked and not call.started and key not in ("type", "function"):
            raise Mismatch("not a call")
        return None

    def _read_value(self, meaning: Hole | None) -> Incremental[None]:
        call = self._call
        if meaning is ARGS and call.name and not call.has_arguments and self._buffered is None:
            call.start()
            yield from call.read_arguments(JSON)
            call.has_arguments = True
            return
        text = (yield from call.read_buffered()).replace(SPECIAL_MARK, "")
        if meaning is ARGS and not call.has_arguments and self._buffered is None:
            self._buffered = text
        elif meaning is NAME:
            name = parse_json(text)
            if not isinstance(name, str) or not name:
                raise Mismatch("the name is not a string")
            call.name = call.name if call.started else name
        elif meaning is ID:
            id = parse_json(text)
            call.id = "" if id is None else str(id)

    def _finish(self) -> None:
        """Start a call whose arguments came first or not at all."""
        call = self._call
        if not call.has_arguments:
            if self._buffered is None and not call.is_marked:
                raise Mismatch("not a call")
            if not call.started:
                call.start()
            call.push("{}" if self._buffered is None else call.as_object(self._buffered))
        call.has_arguments = True
