"""JSON Schemas written as TypeScript writes types.

    type Usage = {prompt_tokens: integer, cached?: integer}        // What an answer has cost.
    type NewItems = {items: Item[1..20]}                           // between 1 and 20 of them
    type Chunk = {id: string, choices: Choice[], usage?: Usage, object: "chunk", error: string | null} | Error
    type Block = partial {type!: "image" | "text", text: string}   // one that is read

An answer has all of its fields but those with a "?". Of a `partial` object, which is read and not written, each may be absent or
null but those with a "!". Besides TypeScript's names there are `integer`, `datetime`, `map<T>` (an object of any names) and
`object`. A comment describes the field or type that it stands behind, or the object whose brace it stands behind. A type whose
name begins with "_" is a shorthand in its text: it is put where it is named, and `..._Page` puts its fields into another object.
"""

import json
import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from callsmith.core.values import Json

Schema: TypeAlias = dict[str, Json]

_PLAIN: Final = ("string", "integer", "number", "boolean", "null")
_TOKEN: Final = re.compile(r'//[^\n]*|"[^"]*"|-?\d+|\[(?:\d+\.\.\d+)?\]|(?:\.\.\.)?[A-Za-z_]\w*|[{}()|:?!,<>=]')


def parse_type(text: str) -> Schema:
    """The schema of one type."""
    parser = _TypeParser(text)
    schema = parser.read_union()
    parser.expect("")
    return schema


def parse_types(text: str) -> dict[str, Schema]:
    """The schemas of several types, by their names: `type A = …` and so on."""
    return dict(_TypeParser(text).read_types())


def nullable(schema: Schema) -> Schema:
    """The schema with null among its values."""
    kind = schema.get("type")
    if "enum" in schema:
        return {**{key: value for key, value in schema.items() if key != "type"}, "enum": [*schema["enum"], None]}
    if isinstance(kind, str):
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]} if schema.keys() - {"description"} else schema


def describe(schema: Schema, about: str) -> Schema:
    """The schema with a description, if there is one."""
    return {**schema, "description": about} if about else schema


class _TypeParser:
    """A recursive descent over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self._tokens = [match[0] for match in _TOKEN.finditer(text)]
        self._place = 0
        self._shorthands: dict[str, Schema] = {}

    def read_types(self) -> Iterator[tuple[str, Schema]]:
        while self._peek():
            self.expect("type")
            name = self._take()
            self.expect("=")
            schema = describe(self.read_union(), self._comment())
            if name.startswith("_"):
                self._shorthands[name] = schema
            else:
                yield name, schema

    def read_union(self) -> Schema:
        self._skip("|")
        terms = [self._read_array()]
        while self._peek() == "|" or (self._peek().startswith("//") and self._peek(1) == "|"):
            terms[-1] = describe(terms[-1], self._comment())
            self.expect("|")
            terms.append(self._read_array())
        constants = [value for term in terms for value in (term.get("enum") or ([term["const"]] if "const" in term else []))]
        if len(constants) > 1:
            are_texts = all(isinstance(value, str) for value in constants)
            words: Schema = {"type": "string", "enum": constants} if are_texts else {"enum": constants}
            terms = [words, *(term for term in terms if "const" not in term and "enum" not in term)]
        has_null = {"type": "null"} in terms and len(terms) > 1
        others = [term for term in terms if term != {"type": "null"}] if has_null else terms
        union: Schema = others[0] if len(others) == 1 else {"anyOf": others}
        return nullable(union) if has_null else union

    def expect(self, token: str) -> None:
        if self._take() != token:
            raise ValueError(f"expected {token or 'the end'!r} before {' '.join(self._tokens[self._place : self._place + 8])!r}")

    def _read_array(self) -> Schema:
        schema = self._read_one()
        while self._peek().startswith("["):
            least, _, most = self._take().strip("[]").partition("..")
            schema = {"type": "array", "items": schema, **({"minItems": int(least), "maxItems": int(most)} if most else {})}
        return schema

    def _read_one(self) -> Schema:
        token = self._take()
        if token == "{":
            return self._read_object(is_partial=False)
        if token == "partial":
            self.expect("{")
            return self._read_object(is_partial=True)
        if token == "(":
            schema = self.read_union()
            self.expect(")")
            return schema
        if token == "map":
            self.expect("<")
            schema = self.read_union()
            self.expect(">")
            return {"type": "object", "additionalProperties": schema}
        if token == "object":
            return {"type": "object", "additionalProperties": True}
        if token == "any":
            return {}
        if token == "never":
            return {"enum": []}
        if token == "datetime":
            return {"type": "string", "format": "date-time"}
        if token in _PLAIN:
            return {"type": token}
        if token.startswith("_"):
            return self._shorthands[token]
        if token in ("true", "false") or token[0] in '"-0123456789':
            return {"const": json.loads(token)}
        return {"$ref": f"#/components/schemas/{token}"}

    def _read_object(self, *, is_partial: bool) -> Schema:
        about = self._comment()
        properties: dict[str, Schema] = {}
        required: list[str] = []
        while not self._skip("}"):
            if self._peek().startswith("..."):
                inner = self._shorthands[self._take().removeprefix("...")]
                self._skip(",")
                properties |= inner["properties"]
                required += inner.get("required", ())
                continue
            name, mark = self._take(), self._skip("!" if is_partial else "?")
            self.expect(":")
            schema = self.read_union()
            self._skip(",")
            if mark == is_partial:
                required.append(name)
            properties[name] = describe(nullable(schema) if is_partial and not mark else schema, self._comment())
        schema: Schema = {"type": "object", "properties": properties, **({"required": required} if required else {})}
        return describe(schema, about)

    def _peek(self, ahead: int = 0) -> str:
        return next(iter(self._tokens[self._place + ahead :][:1]), "")

    def _take(self) -> str:
        token = self._peek()
        self._place += 1
        return token

    def _skip(self, token: str) -> bool:
        is_next = self._peek() == token
        self._place += is_next
        return is_next

    def _comment(self) -> str:
        return self._take().removeprefix("//").strip() if self._peek().startswith("//") else ""
