"""The keywords of objects, of several schemas that hold at once: one set of them, or the reason why nothing fits."""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, cast

from callsmith.core.schema import pointer
from callsmith.grammar.patterns.portable import portable
from callsmith.grammar.schema.normal_form import Left, Never, Part, Simple, Walk, saying, tightest


class Members:
    """An object's keywords being worked together."""

    def __init__(self, walk: Walk, parts: Sequence[Part], left: Left) -> None:
        self.walk, self.parts, self.left = walk, parts, left
        self.path = parts[0].path
        self.required = list(dict.fromkeys(name for part in parts for name in part.listed("required")))
        names = chain.from_iterable(part.mapping("properties") for part in parts)
        self.names = list(dict.fromkeys((*names, *self.required)))
        self.properties: dict[str, Any] = {}
        self.patterns: dict[str, Any] = {}
        self.extra: Any = {}  # the schema of properties not listed; False: there are none

    def made(self) -> dict[str, Any] | Never:
        """The keywords, or why nothing fits."""
        self._open()
        self._by_pattern()
        for name in self.names:
            one = self.walk.schema(*self._said_of(name))
            for part in saying(self.parts, "propertyNames"):
                if not self.walk.valid(part.raw["propertyNames"], name, [(part.path, "propertyNames")]):
                    one = Never(part.path, "propertyNames", f"{name!r} is required, but no such name is allowed")
            if isinstance(one, Simple):
                self.properties[name] = one
            elif name in self.required:
                return one
            elif self.extra is not False or self.patterns:
                self.properties[name] = False
        self._by_name()
        self._dependent()
        counted = self._counted()
        if isinstance(counted, Never):
            return counted
        if self.properties or self.extra is False:
            counted["properties"] = self.properties
        if self.required:
            counted["required"] = self.required
        if self.patterns:
            counted["patternProperties"] = self.patterns
        if self.extra is False or self.extra or self.extra.left:
            counted["additionalProperties"] = self.extra
        return counted

    def _open(self) -> None:
        """Whether there may be others than the listed ones."""
        explicit = [_under(part, "additionalProperties") for part in saying(self.parts, "additionalProperties")]
        first = self.parts[0]
        if not explicit and "unevaluatedProperties" in first.raw:
            explicit = [_under(first, "unevaluatedProperties")]
        for part in saying(self.parts, "unevaluatedProperties"):
            if part.raw["unevaluatedProperties"] is not True and not (part is first and first.sees(self.parts)):
                self.left.append((part.path, "unevaluatedProperties"))
        if explicit:
            made = self.walk.schema(*explicit)
            self.extra = made if isinstance(made, Simple) else False
        elif self.walk.habits and any(_lists(part) for part in self.parts):
            self.extra = False
        else:
            self.extra = Simple({}, self.path)

    def _said_of(self, name: str) -> list[Part]:
        """Everything the parts say of one property."""
        first = self.parts[0]
        if len(self.parts) == 1 and "patternProperties" not in first.raw and name in first.mapping("properties"):
            return [_under(first, "properties", name)]
        found = list[Part]()
        for part in self.parts:
            said = list[Part]()
            if name in part.mapping("properties"):
                said.append(_under(part, "properties", name))
            patterns = part.mapping("patternProperties")
            said += [_under(part, "patternProperties", pattern) for pattern in patterns if _found(pattern, name)]
            if not said and "additionalProperties" in part.raw:
                said.append(_under(part, "additionalProperties"))
            found += said
        if not found and "unevaluatedProperties" in first.raw:
            declared = any(name in part.mapping("properties") for part in self.parts)
            found += [] if declared else [_under(first, "unevaluatedProperties")]
        return found

    def _by_pattern(self) -> None:
        """Properties known by a pattern of their name, as long as no name may match two."""
        for part in self.parts:
            others = [
                _under(one, "additionalProperties") for one in saying(self.parts, "additionalProperties") if one is not part
            ]
            for pattern in part.mapping("patternProperties"):
                made = self.walk.schema(_under(part, "patternProperties", pattern), *others)
                regex = portable(pattern)
                if isinstance(made, Never):
                    if self.extra is not False:
                        self.left.append((part.path, "patternProperties"))
                elif regex is None:  # any name may be one of them
                    self.extra = Simple({}, self.path)
                    self.left.append((part.path, "patternProperties"))
                    self.left += [(one.path, "additionalProperties") for one in saying(self.parts, "additionalProperties")]
                elif all(_apart(regex, other) for other in self.patterns):
                    self.patterns[regex] = made
                else:
                    self.left.append((part.path, "patternProperties"))

    def _by_name(self) -> None:
        """What is said of the names of properties that are not listed."""
        if self.extra is False and not self.patterns:
            return
        for part in saying(self.parts, "propertyNames"):
            names = self.walk.schema(
                Part(part.raw["propertyNames"], f"{part.path}/propertyNames"), Part({"type": "string"}, part.path)
            )
            if isinstance(names, Never):
                self.extra, self.patterns = False, {}
            elif "enum" in names and not self.patterns:
                self.properties |= {name: self.extra for name in names["enum"] if name not in self.properties}
                self.extra = False
            elif (
                names.keys() == {"type", "pattern"}
                and not names.left
                and not self.patterns
                and not (self.extra and self.properties)
            ):
                self.patterns, self.extra = {names["pattern"]: self.extra}, False
            elif names.keys() != {"type"} or names.left:
                self.left.append((part.path, "propertyNames"))

    def _dependent(self) -> None:
        """What one property demands of others: not enforced, unless that one cannot be there."""
        for part in self.parts:
            for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
                for name, wanted in part.mapping(keyword).items():
                    possible = self.properties.get(name, self.extra is not False or bool(self.patterns)) is not False
                    given = isinstance(wanted, list) and {*cast(list[str], wanted)} <= {*self.required}
                    if possible and not given and wanted is not True and (part.path, keyword) not in self.left:
                        self.left.append((part.path, keyword))

    def _counted(self) -> dict[str, Any] | Never:
        """How many properties there may be. Not every engine counts them where one of the listed ones is optional."""
        made: dict[str, Any] = {}
        least, most = tightest(self.parts, "minProperties", most=False), tightest(self.parts, "maxProperties", most=True)
        listed = sum(one is not False for one in self.properties.values())
        closed = self.extra is False and not self.patterns
        if most and most[0] < len(self.required):
            return Never(most[1], "maxProperties", f"{len(self.required)} properties are required")
        if least and ((closed and least[0] > listed) or (most and least[0] > most[0])):
            return Never(
                least[1], "minProperties", f"there are {listed} properties at most" if closed else "maxProperties is less"
            )
        if least and least[0] > len(self.required):
            self.left.append((least[1], "minProperties"))  # a name may be written twice, so counting helps but proves nothing
            made["minProperties"] = int(least[0])
        if most and not (closed and most[0] >= listed):
            made["maxProperties"] = int(most[0])
            if listed > len(self.required):
                self.left.append((most[1], "maxProperties"))
        return made


def _lists(part: Part) -> bool:
    """Whether a part lists the properties there are. An empty list does so only for a tool that takes no arguments."""
    return bool(
        part.mapping("properties") or part.mapping("patternProperties") or (part.path == "#" and "properties" in part.raw)
    )


def _under(part: Part, keyword: str, name: str | None = None) -> Part:
    """The schema under a keyword, or under a name there."""
    value: Any = part.raw[keyword]
    place = f"{part.path}/{keyword}"
    return Part(value, place) if name is None else Part(value[name], place + pointer([name]))


def _found(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False


def _apart(one: str, other: str) -> bool:
    """Whether two patterns surely match no name both: they begin with different letters."""
    heads = [re.match(r"\^([\w -]+)(?![\w -]|[*?{|])", pattern) for pattern in (one, other)]
    if "|" in one + other or not heads[0] or not heads[1]:
        return False
    size = min(len(heads[0][1]), len(heads[1][1]))
    return heads[0][1][:size] != heads[1][1][:size]
