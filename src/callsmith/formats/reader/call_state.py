"""The call that is being read: its name, id and arguments so far, and how its arguments are read as one object."""

import json
from collections.abc import Callable, Mapping
from typing import Any as AnyType

from callsmith.core.values import Json, Schema, Tool
from callsmith.formats.algebra import JSON, Calls, Notation, Spelling, is_strong
from callsmith.formats.reader.literals import LiteralReader, tool_by_name
from callsmith.formats.reader.markers import closers_of
from callsmith.formats.reader.source import Emit, Incremental, Mismatch
from callsmith.formats.reader.typed import ValueSchema, lenient, parse_json
from callsmith.formats.reader.values import Sink, read_notation

FENCES = ("```json", "```")
EMPTY_ARGUMENTS = ("null", '""', "[]")
_NO_PART = Calls()


class CallState:
    """What is known of the current call. `on_start` is given its name and id, `push` pieces of its arguments as JSON text."""

    __slots__ = (
        "_on_start", "allows_any_name", "has_arguments", "id", "is_marked", "literals", "name", "parsed", "part", "push",
        "schema", "source", "started", "text", "tools",
    )  # fmt: skip

    def __init__(
        self, literals: LiteralReader, tools: Mapping[str, Tool], on_start: Callable[[str, str], None], push: Emit
    ) -> None:
        self.literals = literals
        self.source = literals.source
        self.tools = tools
        self.push = push
        self._on_start = on_start
        self.reset()

    def reset(self) -> None:
        """Forget the last call, before the next one."""
        self.name = ""
        self.id = ""
        self.started = False
        self.text: list[str] = []  # the pieces of the arguments that were pushed
        self.parsed: Mapping[str, Json] | None = None  # the arguments, where they were read at once
        self.has_arguments = False  # the arguments are complete; closers that follow may be missing
        self.is_marked = True  # a strong marker was read, which makes this a call whatever follows
        self.allows_any_name = True
        self.part = _NO_PART
        self.schema: Schema = {}
        self.literals.repairs.clear()

    @property
    def repairs(self) -> tuple[str, ...]:
        """The names of the repairs this call needed."""
        return tuple(sorted(self.literals.repairs))

    def arguments(self) -> Mapping[str, Json]:
        """The arguments, parsed from the text that was pushed."""
        if self.parsed is not None:
            return self.parsed
        try:
            parsed: AnyType = lenient.decode("".join(self.text))
        except (ValueError, RecursionError) as problem:
            raise Mismatch(f"arguments are not JSON: {problem}") from None
        return parsed

    def closers(self) -> tuple[str, ...]:
        """The strong markers that end the call or its section."""
        return tuple(closer for closer in closers_of(self.part) if is_strong(closer))

    def start(self) -> None:
        """Announce the call under the name read so far; a `Mismatch` where that cannot be the name of a call."""
        if not self.name:
            raise Mismatch("a call without a name")
        if self.name not in self.tools and (meant := tool_by_name(self.name, self.tools)):
            self.literals.repair("other-name")
            self.name = meant
        if self.tools and self.name not in self.tools and (self.literals.strict or not (self.is_marked or self.allows_any_name)):
            raise Mismatch(f"no tool is called {self.name!r}")
        tool = self.tools.get(self.name)
        self.schema = tool.parameters if tool else {}
        self.started = True
        self._on_start(self.name, self.id)

    def read_arguments(self, values: Spelling) -> Incremental[None]:
        """Read the arguments as one object and stream it."""
        notation = values if isinstance(values, Notation) else JSON
        source, literals = self.source, self.literals
        yield from literals.skip_markers(FENCES, "fenced")
        if "fenced" in literals.repairs and (yield from source.at(self.closers())):
            self.push_no_arguments()
            return
        if (yield from source.peek()) != "{":
            self.push(self.as_object((yield from self.read_buffered(notation))))
            return
        is_doubled = (yield from source.at(("{{",))) is not None
        if is_doubled:
            literals.repair("doubled-braces")
            source.pos += 1
        schema = ValueSchema(self.schema, self.schema)
        yield from read_notation(
            source, notation, Sink(self.push, literals.repair, literals.follows_schema), schema, self.closers()
        )
        if is_doubled and (yield from source.at(("}",))):
            source.pos += 1

    def read_buffered(self, notation: Notation = JSON) -> Incremental[str]:
        """Read one value of a notation to its end, as JSON text."""
        pieces: list[str] = []
        yield from read_notation(self.source, notation, Sink(pieces.append, self.literals.repair))
        return "".join(pieces)

    def push_no_arguments(self) -> None:
        """Complete a call that ends where its arguments should begin."""
        self.literals.repair("no-arguments")
        self.push("{}")
        self.has_arguments = True

    def as_object(self, text: str) -> str:
        """The JSON object meant by arguments in another form: a JSON string of an object, or null and the like for none."""
        if text in EMPTY_ARGUMENTS:
            self.literals.repair("null-arguments")
            return "{}"
        if text.startswith('"'):
            inner = parse_json(parse_json(text) or "")
            if isinstance(inner, dict):
                self.literals.repair("string-arguments")
                return json.dumps(inner, ensure_ascii=False)
        if text.startswith("{"):
            return text
        raise Mismatch("arguments are not an object")
