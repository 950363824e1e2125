"""What the readers of grammar languages share: alternatives, sequences, groups and repetitions, and errors that name the line."""

import re
from abc import ABC, abstractmethod
from typing import Final

from callsmith.core.errors import UsageError
from callsmith.grammar.limits import MAX_BYTES, MAX_DEPTH
from callsmith.grammar.nodes import Alt, Many, Node, Pattern, Seq
from callsmith.grammar.patterns.regex import literal, unparse

MAX_REPEATS: Final = 2000
_COUNT: Final = re.compile(r"\{[ \t]*(\d{1,9})?[ \t]*(,)?[ \t]*(\d{1,9})?[ \t]*\}")
_REPEATS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class GrammarReader(ABC):
    """Reads a grammar's text from its beginning to its end. A `UsageError` says what is wrong, and in which line."""

    space: re.Pattern[str]  # what may stand between two items of a line,
    space_and_lines: re.Pattern[str]  # and where a line may end
    name: re.Pattern[str]
    ends: str  # of a sequence: characters

    def __init__(self, text: str) -> None:
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > MAX_BYTES:
            raise UsageError(f"grammar: has {size} bytes, more than {MAX_BYTES}", field="grammar")
        self.text, self.at, self.depth = text, 0, 0

    @abstractmethod
    def read_item(self) -> Node:
        """One item of a sequence, without its repetition."""

    def read_way(self) -> Node:
        """One of several alternatives."""
        return self.read_sequence()

    def at_next_way(self) -> bool:
        """Skip what leads to another alternative; whether there is one."""
        if not self.text.startswith("|", self.at):
            return False
        self.at += 1
        return True

    def read_alternatives(self) -> Node:
        ways = [self.read_way()]
        while self.at_next_way():
            self.skip(lines=True)
            ways.append(self.read_way())
        return ways[0] if len(ways) == 1 else Alt(tuple(ways))

    def read_sequence(self) -> Node:
        items: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in self.ends and not self.text.startswith("->", self.at):
            items.append(self.read_repeated(self.read_item()))
            self.skip(lines=self.depth > 0)
        return items[0] if len(items) == 1 else Seq(tuple(items))

    def read_group(self, closer: str = ")") -> Node:
        self.at += 1
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"brackets are nested more than {MAX_DEPTH} deep")
        self.skip(lines=True)
        node = self.read_alternatives()
        self.skip(lines=True)
        if not self.text.startswith(closer, self.at):
            raise self.error(f"expected {closer}")
        self.at += 1
        self.depth -= 1
        return node

    def read_repeated(self, node: Node) -> Node:
        """The item with the repetition behind it, if there is one."""
        self.skip(lines=self.depth > 0)
        sign = self.text[self.at : self.at + 1]
        if sign in _REPEATS:
            self.at += 1
            return Many(node, *_REPEATS[sign])
        if sign != "{":
            return node
        counted = _COUNT.match(self.text, self.at)
        if not counted or not (counted[1] or counted[3]):
            raise self.error("expected a number of repetitions")
        least = int(counted[1] or 0)
        node = self.repeat(node, least, int(counted[3]) if counted[3] else None if counted[2] else least)
        self.at = counted.end()
        return node

    def repeat(self, node: Node, least: int, most: int | None) -> Node:
        if max(least, most or 0) > MAX_REPEATS or (most is not None and most < least):
            raise self.error(f"repetitions go from the lower to the higher number, at most {MAX_REPEATS}")
        return Many(node, least, most)

    def read_name(self) -> str:
        match = self.name.match(self.text, self.at)
        if not match:
            raise self.error("expected a name")
        self.at = match.end()
        return match[0]

    def skip(self, *, lines: bool = False) -> None:
        match = (self.space_and_lines if lines else self.space).match(self.text, self.at)
        self.at = match.end() if match else self.at

    def error(self, why: str, at: int | None = None) -> UsageError:
        at = self.at if at is None else at
        line, near = self.text.count("\n", 0, at) + 1, self.text[at : at + 20].split("\n")[0]
        return UsageError(f"grammar: line {line}: {why}, at {near!r}", field="grammar")


def literal_pattern(text: str) -> Pattern:
    """Exactly this text. In a `Lit`, the text of a special token would mean that token."""
    return Pattern(unparse(literal(text)))
