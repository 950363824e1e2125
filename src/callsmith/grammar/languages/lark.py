r"""A grammar that a user wrote in Lark, as rules of nodes.

    start: greeting ", " NAME "!"
    greeting: "hello" | "good " ("morning" | "evening")
    NAME: /[A-Z][a-z]{1,20}/

Covered are rules and terminals, string literals, regular expressions, ranges, groups, repetitions, `%import common.…` and
`%ignore`. Names that results are given, `?` and `!` before a rule, and priorities are read and mean nothing here: whatever the
order in which terminals are tried, the texts are the same. Templates, other imports and `%declare` are refused.
"""

import re
from typing import Final

from callsmith.core.errors import UsageError
from callsmith.grammar.languages.reader import GrammarReader, literal_pattern
from callsmith.grammar.languages.regular import to_regex
from callsmith.grammar.limits import MAX_RULES, check_pattern
from callsmith.grammar.nodes import Alt, Many, Node, Pattern, Ref, Seq, map_leaves, references
from callsmith.grammar.patterns.regex import CharSet, UnsupportedRegex, unparse
from callsmith.grammar.patterns.user_regex import parse_user_regex
from callsmith.grammar.productive import productive_rules

START: Final = "start"
_STRING: Final = re.compile(r'"((?:[^"\\\n]|\\.)*)"(i?)')
_REGEX: Final = re.compile(r"/((?!/)(?:[^/\\\n]|\\.)+)/([a-z]*)")
_RANGE: Final = re.compile(r"[ \t]*\.\.[ \t]*")
_TIMES: Final = re.compile(r"~[ \t]*(\d{1,9})(?:[ \t]*\.\.[ \t]*(\d{1,9}))?")
_WAY: Final = re.compile(r"(?:[ \t\r\n]|//[^\n]*|#[^\n]*)*\|")
_ALIAS: Final = re.compile(r"->[ \t]*[A-Za-z_]\w*")
_PRIORITY: Final = re.compile(r"\.[ \t]*-?\d{1,9}")
_DIRECTIVE: Final = re.compile(r"%([a-z]+)")
_IMPORT: Final = re.compile(r"[ \t]+common[ \t]*(?:\.[ \t]*(\w+)(?:[ \t]*->[ \t]*(\w+))?|\(([ \t\w,]*)\))")
_ESCAPED: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([tnrfv0\\\"'/]))")
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}

# What Lark's own library `common` has.
_COMMON: Final = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[a-fA-F0-9]",
    "INT": "[0-9]+",
    "SIGNED_INT": r"[+\-]?[0-9]+",
    "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+",
    "FLOAT": r"[0-9]+[eE][+\-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+\-]?[0-9]+)?",
    "SIGNED_FLOAT": r"[+\-]?([0-9]+[eE][+\-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+\-]?[0-9]+)?)",
    "NUMBER": r"[0-9]+[eE][+\-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+\-]?[0-9]+)?|[0-9]+",
    "SIGNED_NUMBER": r"[+\-]?([0-9]+[eE][+\-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+\-]?[0-9]+)?|[0-9]+)",
    "ESCAPED_STRING": r'"([^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*([^*]|\*+[^*/])*\*+/",
    "SQL_COMMENT": r"--[^\n]*",
}


def read_lark(text: str) -> tuple[Node, dict[str, Node]]:
    """The node that texts begin with and the rules of a Lark text: patterns, references, and what combines them."""
    return _LarkReader(text).read()


class _LarkReader(GrammarReader):
    space = re.compile(r"(?:[ \t\r]|//[^\n]*|#[^\n]*)*")
    space_and_lines = re.compile(r"(?:[ \t\r\n]|//[^\n]*|#[^\n]*)*")
    name = re.compile(r"[A-Za-z_]\w*", re.ASCII)
    ends = "|)]\n"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._defined: dict[str, Node] = {}
        self._places: dict[str, int] = {}  # of names: where each is defined,
        self._uses: dict[str, int] = {}  # and where it is first referred to
        self._ignored: list[Node] = []

    def read(self) -> tuple[Node, dict[str, Node]]:
        self.skip(lines=True)
        while self.at < len(self.text):
            if self.text[self.at] == "%":
                self._read_directive()
            else:
                self._read_definition()
            self.skip()
            if self.at < len(self.text) and self.text[self.at] != "\n":
                raise self.error("expected the end of the line")
            self.skip(lines=True)
            if len(self._defined) > MAX_RULES:
                raise self.error(f"there are more than {MAX_RULES} rules and terminals")
        for name, at in self._uses.items():
            if name not in self._defined:
                raise self.error(f"there is no {'terminal' if _is_terminal(name) else 'rule'} {name!r}", at)
        if START not in self._defined:
            raise UsageError(f"grammar: there is no rule {START!r}, with which every text begins", field="grammar")
        return self._resolve()

    # --- lines ------------------------------------------------------------------------------------------------------------

    def _read_definition(self) -> None:
        while self.text[self.at : self.at + 1] in ("?", "!") and self.at < len(self.text):
            self.at += 1
        place = self.at
        name = self.read_name()
        if not (_is_terminal(name) or name.islower()):
            raise self.error("a name is in lower case (a rule) or in upper case (a terminal)", place)
        if name in self._defined:
            raise self.error(f"{name!r} is defined twice", place)
        self.skip()
        if priority := _PRIORITY.match(self.text, self.at):
            self.at = priority.end()
            self.skip()
        if self.text[self.at : self.at + 1] in ("{", "["):
            raise self.error("templates and options of rules are not supported")
        if not self.text.startswith(":", self.at):
            raise self.error("expected :")
        self.at += 1
        self.skip()
        self._defined[name], self._places[name] = self.read_alternatives(), place

    def _read_directive(self) -> None:
        directive, place = _DIRECTIVE.match(self.text, self.at), self.at
        self.at = directive.end() if directive else self.at
        match directive and directive[1]:
            case "ignore":
                self.skip()
                node = self.read_alternatives()
                self._ignored.append(node)
            case "import":
                self._read_import(place)
            case _:
                raise self.error("of what begins with % there are %import common and %ignore", place)

    def _read_import(self, place: int) -> None:
        found = _IMPORT.match(self.text, self.at)
        if not found:
            raise self.error("only terminals of `common` can be imported, as in %import common.WS", place)
        self.at = found.end()
        listed = [found[1]] if found[1] else [name.strip() for name in found[3].split(",")]
        for name in listed:
            if name not in _COMMON:
                raise self.error(f"`common` has no {name!r}", place)
            alias = found[2] or name
            if alias in self._defined:
                raise self.error(f"{alias!r} is defined twice", place)
            self._defined[alias], self._places[alias] = Pattern(unparse(parse_user_regex(_COMMON[name]))), place

    # --- items ------------------------------------------------------------------------------------------------------------

    def at_next_way(self) -> bool:
        found = _WAY.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found is not None

    def read_way(self) -> Node:
        node = self.read_sequence()
        if alias := _ALIAS.match(self.text, self.at):
            self.at = alias.end()
            self.skip(lines=self.depth > 0)
        return node

    def read_repeated(self, node: Node) -> Node:
        self.skip(lines=self.depth > 0)
        times = _TIMES.match(self.text, self.at)
        if not times:
            return super().read_repeated(node)
        node = self.repeat(node, int(times[1]), int(times[2] or times[1]))
        self.at = times.end()
        return node

    def read_item(self) -> Node:
        match self.text[self.at]:
            case '"':
                return self._read_string()
            case "/":
                return self._read_regex()
            case "(":
                return self.read_group()
            case "[":
                return Many(self.read_group("]"), 0, 1)
            case "<" | "%":
                raise self.error("tokens and grammars in a grammar are not supported")
            case "&" | "~":
                raise self.error("what terminals have in common, or exclude, is not supported")
            case _:
                place, name = self.at, self.read_name()
                self._uses.setdefault(name, place)
                if self.text.startswith("{", self.at) and not self.text[self.at + 1 : self.at + 2].isdigit():
                    raise self.error("templates are not supported", place)
                return Ref(name)

    def _read_string(self) -> Node:
        place = self.at
        text, flags = self._read_text()
        gap = _RANGE.match(self.text, self.at)
        if not gap:
            return self._regex_node(_as_regex(text), flags, place) if flags else literal_pattern(text)
        self.at = gap.end()
        last, _ = self._read_text()
        if len(text) != 1 or len(last) != 1 or last < text:
            raise self.error("a range goes from the lower to the higher character", place)
        return Pattern(unparse(CharSet(((ord(text), ord(last)),))))

    def _read_text(self) -> tuple[str, str]:
        found = _STRING.match(self.text, self.at)
        if not found:
            raise self.error('expected a text in " on one line')
        inner = found.start(1)

        def unescape(escaped: re.Match[str]) -> str:
            known = _ESCAPED.fullmatch(escaped[0])
            if not known:
                raise self.error("unknown escape", inner + escaped.start())
            if known[4]:
                return _CONTROLS.get(known[4], known[4])
            code = int(known[1] or known[2] or known[3], 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise self.error(f"there is no character {code:x}", inner + escaped.start())
            return chr(code)

        self.at = found.end()
        text = re.sub(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", unescape, found[1])
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise self.error("half of a surrogate pair", inner)
        return text, found[2]

    def _read_regex(self) -> Node:
        found, place = _REGEX.match(self.text, self.at), self.at
        if not found:
            raise self.error("expected a regular expression in / on one line")
        self.at = found.end()
        return self._regex_node(found[1], found[2], place)

    def _regex_node(self, regex: str, flags: str, place: int) -> Node:
        try:
            check_pattern(regex, "the expression")
            return Pattern(unparse(parse_user_regex(regex, flags)))
        except UnsupportedRegex as error:
            raise self.error(f"the expression has what is not supported: {error}", place) from None
        except UsageError as error:
            raise self.error(str(error), place) from None

    # --- terminals --------------------------------------------------------------------------------------------------------

    def _resolve(self) -> tuple[Node, dict[str, Node]]:
        """Where texts begin, and the rules with terminals as patterns, and with what is ignored wherever a terminal ends."""
        terminals = {name: node for name, node in self._defined.items() if _is_terminal(name)}
        ignored = Alt(tuple(self._ignored))
        for name, node in (*terminals.items(), ("%ignore", ignored)):
            for used in references(node):
                if not _is_terminal(used):
                    raise self.error(f"the terminal {name!r} refers to a rule, {used!r}", self._uses[used])
        patterns: dict[str, Node] = {}
        for name, node in (*terminals.items(), *([("%ignore", ignored)] if self._ignored else [])):
            tree = None if name in references(node) else to_regex(node, terminals)
            if tree is None:
                why = "refers to itself, or becomes too large"
                raise self.error(f"the terminal {name!r} {why}", self._places.get(name, 0))
            patterns[name] = Pattern(unparse(tree))
        between = (Many(patterns["%ignore"]),) if self._ignored else ()
        rules = {name: _with_terminals(node, patterns, between) for name, node in self._defined.items() if not _is_terminal(name)}
        good = productive_rules(rules)
        if endless := [name for name in rules if name not in good]:
            raise self.error(f"the rule {endless[0]!r} has no end: it always needs itself again", self._places[endless[0]])
        return Seq((*between, Ref(START))), rules


def _with_terminals(node: Node, patterns: dict[str, Node], between: tuple[Node, ...]) -> Node:
    def with_terminal(leaf: Node) -> Node:
        pattern = patterns.get(leaf.name, leaf) if isinstance(leaf, Ref) else leaf
        return Seq((pattern, *between)) if between and isinstance(pattern, Pattern) else pattern

    return map_leaves(node, with_terminal)


def _is_terminal(name: str) -> bool:
    return name.isupper()


def _as_regex(text: str) -> str:
    """A regular expression that matches exactly this text."""
    return "".join(char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):x}}}" for char in text)
