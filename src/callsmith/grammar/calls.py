"""Format × tools × choice → Grammar: the same walk over the same nodes, with every hole filled by what the tools allow."""

import json
from collections.abc import Sequence
from itertools import takewhile

from callsmith.core.values import Choice, Tool
from callsmith.formats.layout import (
    Any,
    Calls,
    Each,
    Format,
    Hole,
    Ident,
    Nodes,
    Obj,
    Opt,
    Raw,
    Says,
    Thinks,
    first,
    is_strong,
    nodes_of,
    texts,
)
from callsmith.formats.layout import (
    Node as FormatNode,
)
from callsmith.formats.turn import turn_of
from callsmith.formats.typed import types_of
from callsmith.formats.write import escaped, literal_text
from callsmith.grammar.nodes import Alt, Free, Grammar, Lit, Many, Node, Pattern, Seq, Until
from callsmith.grammar.values import KINDS, Ending, Place, Rules, Values, members

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
) -> Grammar | None:
    """The grammar of an answer; None where nothing is to be constrained.

    `opened` is the prompt's tail, `thinking` whether the model may think first (it may always finish a thought the prompt began).
    """
    offered = choice.among(tools)
    if not offered:
        return None
    section = _Section(format, offered, parallel)
    body = section.required() if choice.mode == "required" else section.auto()
    prefix, start = _after(format, section, body, opened)
    if thinking and not prefix and format.thinks:
        start = Seq((Many(_framed(format, format.thinks), 0, 1), start))
    triggers = () if choice.mode == "required" or prefix else section.triggers()
    return Grammar(start, section.rules.nodes, prefix, triggers, tuple(dict.fromkeys(section.rules.left)))


def _after(format: Format, section: "_Section", body: Node, opened: str) -> tuple[str, Node]:
    """What of the answer the prompt has already written, and the grammar that includes it."""
    for part in format.parts:
        if isinstance(part, Thinks | Says):
            head = literal_text(nodes_of(part.open))
            if head.strip() and opened.rstrip().endswith(head.rstrip()):
                return head, Seq((_framed(format, part), body))
    for size in range(len(section.head), 0, -1):
        if opened.endswith(section.head[:size]):
            return section.head[:size], body
    return "", body


def _framed(format: Format, part: Thinks | Says) -> Node:
    """Text or reasoning between its markers, without a marker that would end it."""
    head, close = Lit(literal_text(nodes_of(part.open))), literal_text(nodes_of(part.close))
    ends = turn_of(format).ends(part).texts
    if not close.strip():
        return Seq((head, Free(ends)))
    core = close.strip()
    others = tuple(end for end in ends if end not in core)
    return Seq((head, Until(core, others), Lit(close[close.index(core) + len(core) :])))


class _Section:
    """The calls of a format, for certain tools."""

    def __init__(self, format: Format, tools: Sequence[Tool], parallel: bool) -> None:
        self.format = format
        self.part: Calls = format.calls
        self.rules = Rules()
        self.values = Values(self.part.values, self.rules)
        self.calls = {tool.name: _merged(self._walk(self.part.item, tool)) for tool in tools}
        self.lead = _common([_leading(call) for call in self.calls.values()])
        self.rest = {name: _strip(call, self.lead) for name, call in self.calls.items()}
        self.open, self.close = literal_text(self.part.open), literal_text(self.part.close)
        self.head = self.open + self.lead
        most = 1 if not parallel else self.part.most
        call = self.rules.name(Alt(tuple(self.rest.values())), "call")
        again = Seq((Lit(self.part.between + self.lead), call))
        self.tail = Seq((Many(again, 0, None if most is None else most - 1), Lit(self.close)))
        self.call = call

    def required(self) -> Node:
        """At least one call, and nothing else."""
        return Seq((Lit(self.head), self.call, self.tail))

    def auto(self) -> Node:
        """Text, or text and then calls. The markers of a call stand nowhere else."""
        says = next((part for part in self.format.parts if isinstance(part, Says)), None)
        if says is None:
            return self._text_and_calls()
        if literal_text(nodes_of(says.close)).strip():
            said = _framed(self.format, says)
            return Alt((said, Seq((Many(said, 0, 1), self.required()))))
        return Alt((Seq((Lit(literal_text(nodes_of(says.open))), self._text_and_calls())), self.required()))

    def _text_and_calls(self) -> Node:
        """Text that nothing ends but the marker of a call."""
        core = self._core()
        others = tuple(opener for opener in turn_of(self.format).openers if is_strong(opener) and opener not in core)
        if is_strong(core):
            after = self.head[self.head.index(core) + len(core) :]
            return Alt((Free((core, *others)), Seq((Until(core, others), Lit(after), self.call, self.tail))))
        # A weak marker counts only together with the name of a tool.
        starts = {name: self.head + _leading(rest) for name, rest in self.rest.items()}
        ways = (
            Seq((Until(start, others), _strip(self.rest[name], start[len(self.head) :]), self.tail))
            for name, start in starts.items()
        )
        return Alt((Free((*starts.values(), *others)), *ways))

    def triggers(self) -> tuple[str, ...]:
        """What announces a call; a weak marker only together with the name of a tool."""
        core = self._core()
        return (core,) if is_strong(core) else tuple(self.head + _leading(rest) for rest in self.rest.values())

    def _core(self) -> str:
        """The marker that announces a call."""
        for node in (*self.part.open, *self.part.item):
            written = node.nodes[0] if isinstance(node, Opt) and node.write else node
            for text in texts(written)[:1]:
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
            case Any():
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
                return self.values.whole(Place(tool.parameters, tool.parameters))
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
                    fields.append(Seq((Lit(label), self.values.whole(Place(tool.parameters, tool.parameters)))))
        spaced = [part for field in fields for part in (Lit(", "), field)][1:]
        return Seq((Lit("{"), *spaced, Lit("}")))

    def _each(self, node: Each, tool: Tool) -> Node:
        whole = Place(tool.parameters, tool.parameters)
        schema = self.rules.merged(whole)
        self.rules.unenforced("#", schema)

        def member(key: str) -> Node:
            return self._argument(node.nodes, key, whole.at(schema.get("properties", {}).get(key), "properties", key))

        return members(schema, member, node.between, self.rules)

    def _argument(self, nodes: Nodes, key: str, place: Place) -> Node:
        """One argument, once for each flag that may stand on it."""
        values = self.part.values
        if not isinstance(values, Raw) or not values.flags:
            return self._spelled(nodes, key, place, ("", None))
        types = types_of(place.root, place.schema)
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
                ending = list(takewhile(lambda one: one is Hole.KEY or bool(texts(one)), flat[position:]))
                close = "".join(key if one is Hole.KEY else texts(one)[0] for one in ending)
                core, *others = first(tuple(flat[position:])) or ("",)
                out.append(self.values.within(place, Ending(close, core, tuple(others)), flag[1]))
                position += len(ending)
            elif texts(node):
                out.append(Lit(texts(node)[0]))
        return Seq(tuple(out))


# --- literal heads ----------------------------------------------------------------------------------------------------------


def _merged(node: Node) -> Node:
    """A sequence without nesting, neighbouring literals joined."""
    if not isinstance(node, Seq):
        return node
    items: list[Node] = []
    for item in node.items:
        flat = _merged(item)
        for one in flat.items if isinstance(flat, Seq) else (flat,):
            if isinstance(one, Lit) and items and isinstance(before := items[-1], Lit):
                items[-1] = Lit(before.text + one.text)
            elif not (isinstance(one, Lit) and not one.text):
                items.append(one)
    return Seq(tuple(items))


def _leading(node: Node) -> str:
    """The literal a node begins with."""
    match node:
        case Lit():
            return node.text
        case Seq(items=(Lit() as head, *_)):
            return head.text
        case _:
            return ""


def _strip(node: Node, text: str) -> Node:
    """The node without the literal it begins with."""
    if not text or not isinstance(node, Seq):
        return node
    return Seq((Lit(_leading(node)[len(text) :]), *node.items[1:]))


def _common(texts: Sequence[str]) -> str:
    """The longest common beginning."""
    low, high = min(texts), max(texts)
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(low, high, strict=False)))
