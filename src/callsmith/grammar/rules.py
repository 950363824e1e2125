"""The named rules of a grammar while it is being built, and what they leave unenforced."""

from collections.abc import Iterable

from callsmith.grammar.nodes import Alt, Node, Ref, Seq
from callsmith.grammar.schema.normal_form import Left, Never, Simple


class Rules:
    """The rules of a grammar being built; equal nodes get one rule."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.left: Left = []
        self.reason: Never | None = None  # of the first node that nothing fits
        self._names: dict[str, str] = {}  # a node, as text, and its rule; schemas in it keep it from being a key itself

    def name(self, node: Node, stem: str = "r") -> Ref:
        """The node as a rule of its own."""
        name = self._names.setdefault(repr(node), f"{stem}{len(self.nodes)}")
        self.nodes[name] = node
        return Ref(name)

    def promise(self, stem: str = "r") -> str:
        """A name whose node comes later: for what refers to itself."""
        name = f"{stem}{len(self.nodes)}"
        self.nodes[name] = Seq(())
        return name

    def never(self, path: str, keyword: str, why: str) -> Node:
        """A node that nothing fits."""
        self.reason = self.reason or Never(path, keyword, why)
        return Alt(())

    def unenforced(self, schema: Simple, keywords: Iterable[str]) -> None:
        """List those of the keywords that the schema was made from, if it has any of them."""
        wanted = [keyword for keyword in keywords if keyword in schema.said]
        if any(keyword in schema for keyword in wanted):
            self.left += [(path, keyword) for keyword in wanted for path in schema.said[keyword]]
