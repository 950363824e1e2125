"""Format × tools × choice → Grammar: the same walk over the same nodes, with every hole filled by what the tools allow."""

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
from callsmith.formats.reader.literals import NAME_LIKE, WORD_LIKE
from callsmith.formats.reader.markers import compile_markers
from callsmith.formats.write import escaped, literal_text
from callsmith.grammar.nodes import Alt, Free, Grammar, Lit, Many, Node, Pattern, Seq, Until
from callsmith.grammar.output import said_as
from callsmith.grammar.rules import Rules
from callsmith.grammar.values import KINDS, Ending, Place, Values, members

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

    `opened` is the prompt's tail, `thinking` whether the model may think first (it may always finish a thought the prompt began).
    With an `output` the answer is that, or calls where they may be made; where they must be, only calls.
    """
    offered = choice.among(tools)
    section = Section(format, offered, parallel) if offered else None
    if output is not None and choice.mode != "required":
        return _structured(format, output, section, opened, thinking)
    if section is None:
        return None
    body = section.required() if choice.mode == "required" else section.auto()
    prefix, start = after(format, section.head, body, opened)
    if thinking and not prefix and format.thinks:
        start = Seq((Many(framed(format, format.thinks), 0, 1), start))
    triggers = () if choice.mode == "required" or prefix else section.triggers()
    return Grammar(start, section.rules.nodes, prefix, triggers, tuple(dict.fromkeys(section.rules.left)))


def unenforced(format: Format, tool: Tool) -> tuple[tuple[str, str], ...]:
    """(path, keyword) of what the grammar of this tool's calls does not enforce."""
    return tuple(dict.fromkeys(Section(format, (tool,), parallel=False).rules.left))


def _structured(format: Format, output: Output, section: "Section | None", opened: str, thinking: bool) -> Grammar:
    """The output or calls, and nothing else; a thought may come first."""
    said = said_as(format, output)
    body, heads = said.node, [said.head]
    rules, left = {}, said.unenforced
    if section:
        body, heads = Alt((section.required(), body)), [said.head, section.head]
        rules, left = section.rules.nodes, (*section.rules.left, *left)
    thinks = format.thinks
    if thinks and (head := literal_text(nodes_of(thinks.open))).strip() and opened.rstrip().endswith(head.rstrip()):
        return Grammar(Seq((framed(format, thinks), body)), rules, head, (), tuple(dict.fromkeys(left)))
    begun = (head[:size] for head in heads for size in range(len(head), 0, -1) if opened.endswith(head[:size]))
    start = Seq((Many(framed(format, thinks), 0, 1), body)) if thinks and thinking else body
    return Grammar(start, rules, max(begun, key=len, default=""), (), tuple(dict.fromkeys(left)))


def after(format: Format, begin: str, body: Node, opened: str) -> tuple[str, Node]:
    """What of the answer the prompt has already written, and the grammar that includes it; `begin` is how calls begin."""
    for part in format.parts:
        if isinstance(part, Thinks | Says):
            head = literal_text(nodes_of(part.open))
            if head.strip() and opened.rstrip().endswith(head.rstrip()):
                return head, Seq((framed(format, part), body))
    for size in range(len(begin), 0, -1):
        if opened.endswith(begin[:size]):
            return begin[:size], body
    return "", body


def framed(format: Format, part: Thinks | Says) -> Node:
    """Text or reasoning between its markers, without a marker that would end it."""
    head, close = Lit(literal_text(nodes_of(part.open))), literal_text(nodes_of(part.close))
    ends = compile_markers(format).part_stops(part).texts
    if not close.strip():
        return Seq((head, Free(ends)))
    core = close.strip()
    others = tuple(end for end in ends if end not in core)
    return Seq((head, Until(core, others), Lit(close[close.index(core) + len(core) :])))


class Section:
    """The calls of a format, for certain tools."""

    def __init__(self, format: Format, tools: Sequence[Tool], parallel: bool) -> None:
        self.format = format
        self.part: Calls = format.calls
        self.rules = Rules()
        self.values = Values(self.part.values, self.rules)
        self.places = {tool.name: Place.of(tool.parameters, self.rules) for tool in tools}
        self.calls = {tool.name: merged(self._walk(self.part.item, tool)) for tool in tools}
        self.lead = common([leading(call) for call in self.calls.values()])
        self.rest = {name: stripped(call, self.lead) for name, call in self.calls.items()}
        self.open, self.close = literal_text(self.part.open), literal_text(self.part.close)
        self.head = self.open + self.lead
        self.most = 1 if not parallel else self.part.most

    @cached_property
    def call(self) -> Node:
        """Any of the calls, behind what all of them begin with."""
        return self.rules.name(Alt(tuple(self.rest.values())), "call")

    @cached_property
    def tail(self) -> Node:
        """More calls, and the end."""
        again = Seq((Lit(self.part.between + self.lead), self.call))
        return Seq((Many(again, 0, None if self.most is None else self.most - 1), Lit(self.close)))

    def required(self) -> Node:
        """At least one call, and nothing else."""
        return Seq((Lit(self.head), self.call, self.tail))

    def auto(self) -> Node:
        """Text, or text and then calls. The markers of a call stand nowhere else."""
        says = next((part for part in self.format.parts if isinstance(part, Says)), None)
        if says is None:
            return self._text_and_calls()
        if literal_text(nodes_of(says.close)).strip():
            said = framed(self.format, says)
            return Alt((said, Seq((Many(said, 0, 1), self.required()))))
        return Alt((Seq((Lit(literal_text(nodes_of(says.open))), self._text_and_calls())), self.required()))

    def _text_and_calls(self) -> Node:
        """Text that nothing ends but the marker of a call."""
        core = self.core()
        others = self.others(core)
        if is_strong(core):
            after = self.head[self.head.index(core) + len(core) :]
            return Alt((Free((core, *others)), Seq((Until(core, others), Lit(after), self.call, self.tail))))
        # A weak marker counts only together with the name of a tool.
        starts = {name: self.head + leading(rest) for name, rest in self.rest.items()}
        ways = (
            Seq((Until(start, others), stripped(self.rest[name], start[len(self.head) :]), self.tail))
            for name, start in starts.items()
        )
        return Alt((Free((*starts.values(), *others)), *ways))

    def triggers(self) -> tuple[str, ...]:
        """What announces a call; a weak marker only together with the name of a tool."""
        core = self.core()
        return (core,) if is_strong(core) else tuple(self.head + leading(rest) for rest in self.rest.values())

    def others(self, core: str) -> tuple[str, ...]:
        """The markers that do not stand in text before a call."""
        return tuple(opener for opener in compile_markers(self.format).openers if is_strong(opener) and opener not in core)

    def core(self) -> str:
        """The marker that announces a call."""
        for node in (*self.part.open, *self.part.item):
            written = node.nodes[0] if isinstance(node, Opt) and node.write else node
            for text in literals_of(written)[:1]:
                if text.strip():
                    return text.strip()
            if not isinstance(node, Opt):
                break
        return self.head.strip()

    # --- the walk ---------------------------------------------------------------------------------------------------------

    def _walk(self, nodes: Nodes, tool: Tool) -> Node:
        return Seq(tuple(self._node(node, tool) for node in nodes))

    def _node(self, node: FormatNode, tool: Tool) -> Node:
        match node:
            case str():
                return Lit(node)
            case OneOf():
                return Lit(node.texts[0])
            case Opt():
                inner = self._walk(node.nodes, tool) if node.write else Seq(())
                return Many(inner, 0, 1) if Hole.ID in node.nodes else inner
            case Ident():
                return self._walk(node.nodes, tool)
            case Obj():
                return self._envelope(node, tool)
            case Each():
                return self._each(node, tool)
            case Hole.NAME:
                return Lit(escaped(self.part.values, tool.name))
            case Hole.ID:
                return Pattern(self.format.ids or ANY_ID)
            case Hole.INDEX:
                return NUMBER
            case Hole.ARGS:
                return self.values.whole(self.places[tool.name])
            case Hole():
                return Seq(())

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
                    fields.append(Seq((Lit(label), self.values.whole(self.places[tool.name]))))
        spaced = [part for field in fields for part in (Lit(", "), field)][1:]
        return Seq((Lit("{"), *spaced, Lit("}")))

    def _each(self, node: Each, tool: Tool) -> Node:
        ways = self.places[tool.name].ways()
        each_way = (members(way.schema, partial(self._member, node.nodes, way), node.between) for way in ways)
        return Alt(tuple(each_way)) if len(ways) > 1 else next(each_way)

    def _member(self, nodes: Nodes, place: Place, key: str) -> Node:
        values = self.part.values
        like = NAME_LIKE if isinstance(values, Notation) else WORD_LIKE
        python = isinstance(values, Notation) and values.python
        if not like.fullmatch(key) or key != key.strip() or (python and not key.isidentifier()):
            raise UnsupportedSchema(place.schema.path, "properties", f"this format cannot write the key {key!r}")
        return self._argument(nodes, key, place.property(key))

    def _argument(self, nodes: Nodes, key: str, place: Place) -> Node:
        """One argument, once for each flag that may stand on it."""
        values = self.part.values
        if not isinstance(values, Raw) or not values.flags:
            return self._spelled(nodes, key, place, ("", None))
        types = place.read_types()
        meant = [(flag, kind) for flag, kind in values.flags if types & KINDS[kind]]
        return Alt(tuple(self._spelled(nodes, key, place, flag) for flag in meant))

    def _spelled(self, nodes: Nodes, key: str, place: Place, flag: tuple[str, str | None]) -> Node:
        out: list[Node] = []
        flat = [inner for node in nodes for inner in (node.nodes if isinstance(node, Opt) and node.write else (node,))]
        position = 0
        while position < len(flat):
            node = flat[position]
            position += 1
            if node is Hole.KEY:
                out.append(Lit(escaped(self.part.values, key)))
            elif node is Hole.TYPE:
                out.append(Lit(flag[0]))
            elif node is Hole.VALUE:
                ending = list(takewhile(lambda one: one is Hole.KEY or bool(literals_of(one)), flat[position:]))
                close = "".join(key if one is Hole.KEY else literals_of(one)[0] for one in ending)
                core, *others = first_literals(tuple(flat[position:])) or ("",)
                out.append(self.values.within(place, Ending(close, core, tuple(others)), flag[1]))
                position += len(ending)
            elif literals_of(node):
                out.append(Lit(literals_of(node)[0]))
        return Seq(tuple(out))


# --- literal heads ----------------------------------------------------------------------------------------------------------


def merged(node: Node) -> Node:
    """A sequence without nesting, neighbouring literals joined."""
    if not isinstance(node, Seq):
        return node
    items: list[Node] = []
    for item in node.items:
        flat = merged(item)
        for one in flat.items if isinstance(flat, Seq) else (flat,):
            if isinstance(one, Lit) and items and isinstance(before := items[-1], Lit):
                items[-1] = Lit(before.text + one.text)
            elif not (isinstance(one, Lit) and not one.text):
                items.append(one)
    return Seq(tuple(items))


def leading(node: Node) -> str:
    """The literal a node begins with."""
    match node:
        case Lit():
            return node.text
        case Seq(items=(Lit() as head, *_)):
            return head.text
        case _:
            return ""


def stripped(node: Node, text: str) -> Node:
    """The node without the literal it begins with."""
    if not text or not isinstance(node, Seq):
        return node
    return Seq((Lit(leading(node)[len(text) :]), *node.items[1:]))


def common(texts: Sequence[str]) -> str:
    """The longest common beginning."""
    low, high = min(texts), max(texts)
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(low, high, strict=False)))
