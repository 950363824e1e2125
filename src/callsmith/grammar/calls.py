"""Format × tools × choice → Grammar: the nodes of the format, with every hole filled by what the tools allow."""

import json
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import takewhile

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.values import Choice, Output, Tool
from callsmith.formats.algebra import (
    Calls,
    Each,
    Format,
    Hole,
    Ident,
    Nodes,
    Notation,
    Obj,
    OneOf,
    Opt,
    Raw,
    Says,
    Thinks,
    first_literals,
    is_strong,
    literals_of,
    nodes_of,
)
from callsmith.formats.algebra import (
    Node as FormatNode,
)
from callsmith.formats.reader.literals import word_like
from callsmith.formats.reader.markers import compile_markers
from callsmith.formats.write import escape_name, literal_text
from callsmith.grammar.nodes import NOTHING, Alt, FreeText, Grammar, Lit, Many, Node, Pattern, Seq, Until
from callsmith.grammar.output import output_grammar, text_part
from callsmith.grammar.rules import Rules
from callsmith.grammar.values import TYPES_BY_FLAG, Ending, SchemaPlace, Values, member_nodes

ANY_ID = r"[a-zA-Z0-9_-]{1,40}"
NUMBER = Pattern("[0-9]{1,3}")


def grammar_for(
    format: Format,
    tools: Sequence[Tool],
    choice: Choice,
    *,
    parallel: bool = True,
    opened: str = "",
    thinking: bool = False,
    output: Output | None = None,
) -> Grammar | None:
    """The grammar of an answer; None where nothing is to be constrained.

    `opened` is the beginning of the answer that the prompt contains. `thinking` says whether the model may reason first; it may
    always finish reasoning that the prompt has begun. With an `output`, the answer is that output, or calls if the choice allows
    them; if the choice requires calls, only calls.
    """
    offered = choice.among(tools)
    calls = CallsGrammar(format, offered, parallel) if offered else None
    if output is not None and choice.mode != "required":
        return _structure(format, output, calls, opened, thinking)
    if calls is None:
        return None
    body = calls.require_calls() if choice.mode == "required" else calls.auto()
    prefix, start = with_prefix(format, calls.head, body, opened, choice)
    if thinking and not prefix and format.thinks:
        start = Seq((Many(framed_text(format, format.thinks), 0, 1), start))
    triggers = () if choice.mode == "required" or prefix else calls.triggers()
    return Grammar(start, calls.rules.nodes, prefix, triggers, calls.rules.list_unenforced())


def list_unenforced(format: Format, tool: Tool) -> tuple[tuple[str, str], ...]:
    """(path, keyword) of the schema keywords that the grammar of this tool's calls does not enforce."""
    return CallsGrammar(format, (tool,), parallel=False).rules.list_unenforced()


def _structure(format: Format, output: Output, calls: "CallsGrammar | None", opened: str, thinking: bool) -> Grammar:
    """The grammar of an answer that is the output, or calls; reasoning may come first."""
    grammar = output_grammar(format, output)
    body, heads = grammar.node, [grammar.head]
    rules, unenforced = {}, grammar.unenforced
    if calls:
        body, heads = Alt((calls.require_calls(), body)), [grammar.head, calls.head]
        rules, unenforced = calls.rules.nodes, tuple(dict.fromkeys((*calls.rules.unenforced, *unenforced)))
    thinks = format.thinks
    if thinks and (head := _opened_by(thinks, opened)):
        return Grammar(Seq((framed_text(format, thinks), body)), rules, head, (), unenforced)
    prefix = max((_overlap(opened, head) for head in heads), key=len)
    start = Seq((Many(framed_text(format, thinks), 0, 1), body)) if thinks and thinking else body
    return Grammar(start, rules, prefix, (), unenforced)


def with_prefix(format: Format, head: str, body: Node, opened: str, choice: Choice) -> tuple[str, Node]:
    """The part of the answer that the prompt already contains, and the grammar including it; `head` is what calls begin with.

    Where a call is required, text that the prompt has opened is closed at once.
    """
    for part in format.parts:
        if isinstance(part, Thinks | Says) and (text_head := _opened_by(part, opened)):
            if isinstance(part, Says) and choice.mode == "required":
                return text_head, Seq((Lit(text_head + literal_text(nodes_of(part.close))), body))
            return text_head, Seq((framed_text(format, part), body))
    return _overlap(opened, head), body


def _opened_by(part: Thinks | Says, opened: str) -> str:
    """The opening marker of the part, if the prompt ends with it; white space at the end does not count."""
    head = literal_text(nodes_of(part.open))
    return head if head.strip() and opened.rstrip().endswith(head.rstrip()) else ""


def _overlap(opened: str, head: str) -> str:
    """The longest beginning of `head` that the prompt ends with."""
    return next((head[:size] for size in range(len(head), 0, -1) if opened.endswith(head[:size])), "")


def framed_text(format: Format, part: Thinks | Says) -> Node:
    """Text or reasoning between its markers, containing no marker that would end it."""
    head, close = Lit(literal_text(nodes_of(part.open))), literal_text(nodes_of(part.close))
    ends = compile_markers(format).part_stops(part).texts
    if not close.strip():
        return Seq((head, FreeText(ends)))
    marker = close.strip()
    others = tuple(end for end in ends if end not in marker)
    return Seq((head, Until(marker, others), Lit(close[close.index(marker) + len(marker) :])))


class CallsGrammar:
    """The grammar of a format's calls, for certain tools.

    `calls` are the nodes of one call, by the tool's name; all begin with `shared_start`, and `rests` are without it. `head` is
    what the first call begins with, the format's opening marker included.
    """

    def __init__(self, format: Format, tools: Sequence[Tool], parallel: bool) -> None:
        self.format = format
        self.part: Calls = format.calls
        self.rules = Rules()
        self.values = Values(self.part.values, self.rules)
        self.places = {tool.name: SchemaPlace.of(tool.parameters, self.rules) for tool in tools}
        self.calls = {tool.name: flatten(self._walk(self.part.item, tool)) for tool in tools}
        self.shared_start = common_prefix([leading_literal(call) for call in self.calls.values()])
        self.rests = {name: drop_literal(call, self.shared_start) for name, call in self.calls.items()}
        self.open, self.close = literal_text(self.part.open), literal_text(self.part.close)
        self.head = self.open + self.shared_start
        self.max_calls = 1 if not parallel else self.part.most
        # White space that leads to another call, where nothing closes them. Models that write it may want to end all the same; if
        # it left them no other way than a call, they would call again and again.
        between = "" if self.max_calls == 1 or self.close else self.part.between
        self.space = between[: len(between) - len(between.lstrip())]

    @cached_property
    def call(self) -> Node:
        """Any of the calls, without the start they share."""
        return self.rules.name(Alt(tuple(self.rests.values())), "call")

    @cached_property
    def tail(self) -> Node:
        """What follows the first call: more calls, and the closing marker."""
        again = Seq((Lit(self.part.between + self.shared_start), self.call))
        more = Many(again, 0, None if self.max_calls is None else self.max_calls - 1)
        return Seq((more, Many(Lit(self.space), 0, 1) if self.space else Lit(self.close)))

    def require_calls(self) -> Node:
        """The grammar of one or more calls without text."""
        return Seq((Lit(self.head), self.call, self.tail))

    def auto(self) -> Node:
        """The grammar of text, calls, or text and then calls. The markers of a call occur nowhere else."""
        says = text_part(self.format)
        if says is None:
            return self._text_and_calls()
        if literal_text(nodes_of(says.close)).strip():
            text = framed_text(self.format, says)
            return Alt((text, Seq((Many(text, 0, 1), self.require_calls()))))
        return Alt((Seq((Lit(literal_text(nodes_of(says.open))), self._text_and_calls())), self.require_calls()))

    def _text_and_calls(self) -> Node:
        """Text without a closing marker: only the marker of a call ends it."""
        marker = self.marker()
        others = self.other_markers(marker)
        if is_strong(marker):
            after = self.head[self.head.index(marker) + len(marker) :]
            return Alt((FreeText((marker, *others)), Seq((Until(marker, others), Lit(after), self.call, self.tail))))
        # A weak marker counts only together with the name of a tool.
        starts = {name: self.head + leading_literal(rest) for name, rest in self.rests.items()}
        ways = (
            Seq((Until(start, others), drop_literal(self.rests[name], start[len(self.head) :]), self.tail))
            for name, start in starts.items()
        )
        return Alt((FreeText((*starts.values(), *others)), *ways))

    def triggers(self) -> tuple[str, ...]:
        """The texts that begin a call; a weak marker counts only together with the name of a tool."""
        marker = self.marker()
        return (marker,) if is_strong(marker) else tuple(self.head + leading_literal(rest) for rest in self.rests.values())

    def other_markers(self, marker: str) -> tuple[str, ...]:
        """The other markers that may not occur in text before a call."""
        return tuple(opener for opener in compile_markers(self.format).openers if is_strong(opener) and opener not in marker)

    def marker(self) -> str:
        """The marker that a call begins with."""
        for node in (*self.part.open, *self.part.item):
            marker = node.nodes[0] if isinstance(node, Opt) and node.write else node
            for text in literals_of(marker)[:1]:
                if text.strip():
                    return text.strip()
            if not isinstance(node, Opt):
                break
        return self.head.strip()

    # --- from the format's nodes to grammar nodes -------------------------------------------------------------------------

    def _walk(self, nodes: Nodes, tool: Tool) -> Node:
        return Seq(tuple(self._node(node, tool) for node in nodes))

    def _node(self, node: FormatNode, tool: Tool) -> Node:
        match node:
            case str():
                return Lit(node)
            case OneOf():
                return Lit(node.texts[0])
            case Opt():
                inner = self._walk(node.nodes, tool) if node.write else NOTHING
                return Many(inner, 0, 1) if Hole.ID in node.nodes else inner
            case Ident():
                return self._walk(node.nodes, tool)
            case Obj():
                return self._envelope(node, tool)
            case Each():
                return self._each(node, tool)
            case Hole.NAME:
                return Lit(escape_name(self.part.values, tool.name))
            case Hole.ID:
                return Pattern(self.format.ids or ANY_ID)
            case Hole.INDEX:
                return NUMBER
            case Hole.ARGS:
                return self.values.value(self.places[tool.name])
            case Hole():
                return NOTHING

    def _envelope(self, node: Obj, tool: Tool) -> Node:
        fields: list[Node] = []
        for key, hole in node.fields:
            label = json.dumps(tool.name if isinstance(key, Hole) else key) + ": "
            match hole:
                case Hole.NAME:
                    fields.append(Lit(label + json.dumps(tool.name)))
                case Hole.ID:
                    fields.append(Seq((Lit(f'{label}"'), Pattern(self.format.ids or ANY_ID), Lit('"'))))
                case _:
                    fields.append(Seq((Lit(label), self.values.value(self.places[tool.name]))))
        spaced = [part for field in fields for part in (Lit(", "), field)][1:]
        return Seq((Lit("{"), *spaced, Lit("}")))

    def _each(self, node: Each, tool: Tool) -> Node:
        ways = self.places[tool.name].alternatives()
        each_way = (member_nodes(way.schema, partial(self._member, node.nodes, way), node.between) for way in ways)
        return Alt(tuple(each_way)) if len(ways) > 1 else next(each_way)

    def _member(self, nodes: Nodes, place: SchemaPlace, key: str) -> Node:
        values = self.part.values
        like = word_like(values, is_name=isinstance(values, Notation))
        python = isinstance(values, Notation) and values.python
        if not like.fullmatch(key) or key != key.strip() or (python and not key.isidentifier()):
            raise UnsupportedSchema(place.schema.path, "properties", f"this format cannot write the key {key!r}")
        return self._argument(nodes, key, place.property(key))

    def _argument(self, nodes: Nodes, key: str, place: SchemaPlace) -> Node:
        """One argument, as alternatives: one for each type flag that its value may have."""
        values = self.part.values
        if not isinstance(values, Raw) or not values.flags:
            return self._argument_nodes(nodes, key, place, ("", None))
        types = place.read_types()
        meant = [(flag, kind) for flag, kind in values.flags if types & TYPES_BY_FLAG[kind]]
        return Alt(tuple(self._argument_nodes(nodes, key, place, flag) for flag in meant))

    def _argument_nodes(self, nodes: Nodes, key: str, place: SchemaPlace, flag: tuple[str, str | None]) -> Node:
        out: list[Node] = []
        flat = [inner for node in nodes for inner in (node.nodes if isinstance(node, Opt) and node.write else (node,))]
        position = 0
        while position < len(flat):
            node = flat[position]
            position += 1
            if node is Hole.KEY:
                out.append(Lit(escape_name(self.part.values, key)))
            elif node is Hole.TYPE:
                out.append(Lit(flag[0]))
            elif node is Hole.VALUE:
                ending = list(takewhile(lambda item: item is Hole.KEY or bool(literals_of(item)), flat[position:]))
                close = "".join(key if item is Hole.KEY else literals_of(item)[0] for item in ending)
                marker, *others = first_literals(tuple(flat[position:])) or ("",)
                out.append(self.values.closed_value(place, Ending(close, marker, tuple(others)), flag[1]))
                position += len(ending)
            elif literals_of(node):
                out.append(Lit(literals_of(node)[0]))
        return Seq(tuple(out))


# --- the literals that nodes begin with -------------------------------------------------------------------------------------


def flatten(node: Node) -> Node:
    """The sequence without nested sequences, with neighbouring literals joined."""
    if not isinstance(node, Seq):
        return node
    items: list[Node] = []
    for item in node.items:
        flat = flatten(item)
        for part in flat.items if isinstance(flat, Seq) else (flat,):
            if isinstance(part, Lit) and items and isinstance(before := items[-1], Lit):
                items[-1] = Lit(before.text + part.text)
            elif not (isinstance(part, Lit) and not part.text):
                items.append(part)
    return Seq(tuple(items))


def leading_literal(node: Node) -> str:
    """The literal a node begins with."""
    match node:
        case Lit():
            return node.text
        case Seq(items=(Lit() as head, *_)):
            return head.text
        case _:
            return ""


def drop_literal(node: Node, text: str) -> Node:
    """The node without this text, with which its first literal begins."""
    if not text or not isinstance(node, Seq):
        return node
    return Seq((Lit(leading_literal(node)[len(text) :]), *node.items[1:]))


def common_prefix(texts: Sequence[str]) -> str:
    """The longest text that all of these begin with."""
    low, high = min(texts), max(texts)
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(low, high, strict=False)))
