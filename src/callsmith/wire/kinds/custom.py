"""Custom tools: their calls are a text and no JSON, which may have to fit a grammar.

    {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: …"}}

A model writes them like any other call: the text is the only parameter, `input`, and the grammar a keyword in its schema.
"""

import json
import re
from dataclasses import replace
from typing import Final, Literal

from callsmith.core.schema import GRAMMAR
from callsmith.core.values import Call, Json, Schema, Tool
from callsmith.wire.calls import read_arguments
from callsmith.wire.fields import Fields

CUSTOM: Final = "custom"
INPUT: Final = "input"
_SYNTAXES: Final = ("lark", "regex")
_MOST_CHARACTERS: Final = 200_000  # of a grammar
_OPENING: Final = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_LONGEST_OPENING: Final = 64
_LONGEST_ESCAPE: Final = 12  # a surrogate pair
# What may be decoded before the rest of a JSON string is there: half a surrogate pair may not.
_LETTERS: Final = re.compile(
    r'(?:[^"\\\x00-\x1f]+|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)


def read_parameters(fields: Fields) -> Schema:
    """The schema of the calls of a custom tool."""
    text: dict[str, Json] = {"type": "string"}
    format = fields.object("format") or Fields({})
    match format.text("type") or "text":
        case "text":
            pass
        case "grammar":
            text[GRAMMAR] = _read_grammar(format.object("grammar") or format)
        case other:
            raise format.error("type", f"{other!r} is neither text nor grammar")
    return {"type": "object", "properties": {INPUT: text}, "required": [INPUT], "additionalProperties": False}


def _read_grammar(fields: Fields) -> dict[str, Json]:
    syntax, definition = fields.required_text("syntax"), fields.required_text("definition")
    if syntax not in _SYNTAXES:
        raise fields.error("syntax", f"{syntax!r} is none of {', '.join(_SYNTAXES)}")
    if len(definition) > _MOST_CHARACTERS:
        raise fields.error("definition", f"has {len(definition):,} characters, more than {_MOST_CHARACTERS:,}")
    return {"syntax": syntax, "definition": definition}


def grammar_of(tool: Tool) -> Json:
    """The grammar of a custom tool's text, `{"syntax", "definition"}`; None if there is none."""
    return tool.parameters.get("properties", {}).get(INPUT, {}).get(GRAMMAR)


def as_function(tool: Tool) -> Tool:
    """A tool of any kind as a function, for servers that know no others; it says itself which grammar its text has."""
    grammar = grammar_of(tool)
    if not grammar:
        return replace(tool, kind="", strict=False)
    says = f"The input has to fit this grammar ({grammar['syntax']}):\n{grammar['definition']}"
    plain = {**tool.parameters, "properties": {INPUT: {"type": "string"}}}
    return replace(tool, kind="", strict=False, parameters=plain, description=f"{tool.description}\n\n{says}".strip())


def write_definition(tool: Tool, name: str, *, nested: bool) -> dict[str, Json]:
    """A custom tool's name, description and format. `nested`: the grammar is an object of its own, as in chat completions."""
    definition: dict[str, Json] = {"name": name}
    if tool.description:
        definition["description"] = tool.description
    if grammar := grammar_of(tool):
        definition["format"] = {"type": "grammar", **({"grammar": dict(grammar)} if nested else grammar)}
    return definition


def custom_call(name: str, text: str, id: str) -> Call:
    """The call of a custom tool with this text."""
    return Call(name, {INPUT: text}, id)


def read_input(text: str) -> str:
    """The input in the JSON text of a call; the whole text, if there is none in it."""
    value = (read_arguments(text) or {}).get(INPUT)
    return value if isinstance(value, str) else text


class InputReader:
    """The input of a call, while the JSON of its arguments comes in pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._held = ""  # what has come and cannot be decoded yet
        self._state: Literal["before", "inside", "elsewhere"] = "before"
        self._given: list[str] = []

    def feed(self, piece: str) -> str:
        """What more of the input is known with this piece."""
        self._pieces.append(piece)
        if self._state == "elsewhere":
            return ""
        self._held += piece
        if self._state == "before":
            opening = _OPENING.match(self._held)
            if opening is None:
                self._state = "before" if len(self._held) < _LONGEST_OPENING else "elsewhere"
                return ""
            self._state, self._held = "inside", self._held[opening.end() :]
        letters = _LETTERS.match(self._held)
        assert letters is not None  # it matches an empty text, too
        self._held = self._held[letters.end() :]
        if len(self._held) > _LONGEST_ESCAPE:  # this is none that is not complete yet
            self._state, self._held = "elsewhere", ""
        text: str = json.loads(f'"{letters[0]}"')
        self._given.append(text)
        return text

    @property
    def given(self) -> str:
        """All that is known so far."""
        return "".join(self._given)

    def finish(self) -> str:
        """What is missing, now that all pieces are there."""
        whole, given = read_input("".join(self._pieces)), self.given
        rest = whole[len(given) :] if whole.startswith(given) else ""
        self._given.append(rest)
        return rest
