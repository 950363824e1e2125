"""A grammar as the request fields of the servers that enforce it: vLLM, SGLang, llama-server.

What each accepts, as of their releases of autumn 2026:

vLLM          `structured_outputs: {"grammar": …}` or `{"structural_tag": …}` in a completion or chat request. Its backend
              xgrammar reads GBNF, its backend guidance reads Lark; a grammar with `::=` in it counts as the former.
SGLang        `ebnf` or `structural_tag` among the sampling parameters of `/generate`, or beside them in an OpenAI request. Its
              backend xgrammar reads GBNF; llguidance takes the same text.
llama-server  `grammar`, `grammar_lazy`, `grammar_triggers`, `preserved_tokens` of `/completion`. Its chat endpoint ignores the
              last three, so a grammar that waits for a trigger needs `/completion`.

Grammars that wait for a trigger: xgrammar has structural tags for them, in which the grammar begins after the trigger.
llama-server searches the text so far by regular expressions; a group that matches the text from its beginning makes the grammar
apply to all of it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from callsmith.core.errors import UsageError
from callsmith.grammar.nodes import Alt, Closed, Grammar, Lit, Many, Node, Seq, Until, items_of
from callsmith.grammar.targets.gbnf import to_gbnf
from callsmith.grammar.targets.lark import to_lark

Backend = Literal["xgrammar", "guidance"]
_PATTERN = 2  # llama-server's number for a trigger that is a regular expression
_TOKEN_LIKE = re.compile(r"<\|?[^<>\s\"=]+\|?>|\[/?[A-Z_]{3,}\]")


@dataclass(frozen=True, slots=True)
class GrammarFields:
    """The fields to add to a request. `unenforced` is validated after generation."""

    body: Mapping[str, Any]
    unenforced: tuple[tuple[str, str], ...] = ()


def for_vllm(grammar: Grammar, backend: Backend = "xgrammar", specials: Mapping[str, int] | None = None) -> GrammarFields:
    """The fields for vLLM. `specials` matter to guidance alone: xgrammar recognizes special tokens by their text."""
    if backend == "guidance":
        return GrammarFields({"structured_outputs": {"grammar": to_lark(drop_prefix(grammar), specials)}}, grammar.unenforced)
    fields = _for_xgrammar(grammar, "grammar")
    return GrammarFields({"structured_outputs": fields.body}, fields.unenforced)


def for_sglang(grammar: Grammar) -> GrammarFields:
    """The fields for SGLang, with either of its backends that accept a grammar."""
    return _for_xgrammar(grammar, "ebnf")


def _for_xgrammar(grammar: Grammar, field: str) -> GrammarFields:
    tag = structural_tag(grammar)
    if tag is not None:
        return GrammarFields({"structural_tag": json.dumps(tag.body)}, tag.unenforced)
    gbnf = to_gbnf(drop_prefix(grammar))
    return GrammarFields({field: gbnf.text}, gbnf.unenforced)


def for_llama_server(grammar: Grammar, specials: Mapping[str, int] | None = None) -> GrammarFields:
    """The fields for llama-server. Without `specials`, everything that looks like a special token is listed as one to preserve;
    the server ignores those that are none."""
    gbnf = to_gbnf(drop_prefix(grammar), specials)
    literals = sorted(set(_literals(grammar)))
    tokens = specials if specials is not None else {token for text in literals for token in _TOKEN_LIKE.findall(text)}
    body: dict[str, Any] = {"grammar": gbnf.text}
    if preserved := sorted(token for token in tokens if any(token in text for text in literals)):
        body["preserved_tokens"] = preserved
    if grammar.triggers:
        escaped = [re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", text) for text in grammar.triggers]  # as C++ has them
        triggers = [{"type": _PATTERN, "value": rf"([\s\S]*?{text})"} for text in escaped]
        body |= {"grammar_lazy": True, "grammar_triggers": triggers}
    return GrammarFields(body, gbnf.unenforced)


def structural_tag(grammar: Grammar) -> GrammarFields | None:
    """A grammar that waits for a trigger, as xgrammar's structural tag; None without triggers, or where text has markers."""
    ways = list(_behind_triggers(grammar.start, grammar.triggers))
    if {trigger for trigger, _ in ways} != set(grammar.triggers) or not ways:
        return None
    rests = [(trigger, to_gbnf(replace(grammar, start=rest, prefix="", triggers=()))) for trigger, rest in ways]
    tags = [
        {"type": "tag", "begin": trigger, "content": {"type": "grammar", "grammar": gbnf.text}, "end": ""}
        for trigger, gbnf in rests
    ]
    # The grammar after a trigger covers all calls of an answer: nothing comes after them.
    format = {"type": "triggered_tags", "triggers": list(grammar.triggers), "tags": tags, "stop_after_first": True}
    unenforced = tuple(dict.fromkeys(item for _, gbnf in rests for item in gbnf.unenforced))
    return GrammarFields({"type": "structural_tag", "format": format}, unenforced)


def _behind_triggers(node: Node, triggers: tuple[str, ...]) -> Iterator[tuple[str, Node]]:
    """Yield each trigger that ends free text, with the node that follows it."""
    match node:
        case Alt():
            for item in node.items:
                yield from _behind_triggers(item, triggers)
        case Seq(items=(Until(close=close), *rest)) if close in triggers:
            yield close, Seq(tuple(rest))
        case _:
            pass


# --- the part of the answer that the prompt contains --------------------------------------------------------------------------


def drop_prefix(grammar: Grammar) -> Grammar:
    """The grammar without its prefix: a server's matcher begins after the prompt, where the model begins."""
    if not grammar.prefix:
        return grammar
    start = _remainder(grammar.start, grammar.prefix)
    if start is None:
        raise UsageError(f"the prompt begins the answer with {grammar.prefix!r}, and this target cannot continue from there")
    return replace(grammar, start=start, prefix="")


def _remainder(node: Node, text: str) -> Node | None:
    """The rest of a node after this text; None where the node does not begin with it."""
    if not text:
        return node
    match node:
        case Lit():
            return Lit(node.text[len(text) :]) if node.text.startswith(text) else None
        case Seq(items=(Lit() as head, *rest)) if text.startswith(head.text):
            return _remainder(Seq(tuple(rest)), text[len(head.text) :])
        case Seq(items=(head, *rest)):
            after = _remainder(head, text)
            return None if after is None else Seq((after, *rest))
        case Alt():
            ways = [after for item in node.items if (after := _remainder(item, text)) is not None]
            return Alt(tuple(ways)) if ways else None
        case Many(least=0, most=1):
            return _remainder(node.item, text)
        case _:
            return None


def _literals(grammar: Grammar) -> Iterator[str]:
    """Yield every literal of a grammar, and its triggers."""
    todo: list[Node] = [grammar.start, *grammar.rules.values()]
    yield from grammar.triggers
    while todo:
        match todo.pop():
            case Lit(text=text) | Until(close=text) | Closed(close=text):
                yield text
            case node:
                todo += items_of(node)
