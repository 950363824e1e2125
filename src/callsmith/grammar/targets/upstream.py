"""A grammar as the request fields of the servers that enforce it: vLLM, SGLang, llama-server.

What each demands, as of their releases of autumn 2026:

vLLM          `structured_outputs: {"grammar": …}` or `{"structural_tag": …}` in a completion or chat request. Its backend
              xgrammar reads GBNF, its backend guidance reads Lark; a grammar with `::=` in it counts as the former.
SGLang        `ebnf` or `structural_tag` among the sampling parameters of `/generate`, or beside them in an OpenAI request. Its
              backend xgrammar reads GBNF; llguidance takes the same text.
llama-server  `grammar`, `grammar_lazy`, `grammar_triggers`, `preserved_tokens` of `/completion`. Its chat endpoint keeps the last
              three for itself and drops them, so a grammar that waits for a trigger needs `/completion`.

Grammars that wait for a trigger: xgrammar has structural tags for it, in which the grammar begins behind the trigger.
llama-server searches the text so far by regular expressions; a group that begins with the text hands all of it to the grammar.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from callsmith.core.errors import UsageError
from callsmith.grammar.nodes import Alt, Grammar, Lit, Many, Node, Record, Seq, Until
from callsmith.grammar.targets.gbnf import to_gbnf
from callsmith.grammar.targets.lark import to_lark

Backend = Literal["xgrammar", "guidance"]
_PATTERN = 2  # llama-server's number for a trigger that is a regular expression
_TOKEN_LIKE = re.compile(r"<\|?[^<>\s\"=]+\|?>|\[/?[A-Z_]{3,}\]")


@dataclass(frozen=True, slots=True)
class Fields:
    """What to put into a request. `unenforced` is what the grammar leaves to the validation after generation."""

    body: Mapping[str, Any]
    unenforced: tuple[tuple[str, str], ...] = ()


def for_vllm(grammar: Grammar, backend: Backend = "xgrammar", specials: Mapping[str, int] | None = None) -> Fields:
    """For vLLM. `specials` matter to guidance alone: xgrammar tells special tokens by their text."""
    if backend == "guidance":
        return Fields({"structured_outputs": {"grammar": to_lark(unprefixed(grammar), specials)}}, grammar.unenforced)
    tag = structural_tag(grammar)
    if tag is not None:
        return Fields({"structured_outputs": {"structural_tag": json.dumps(tag.body)}}, tag.unenforced)
    made = to_gbnf(unprefixed(grammar))
    return Fields({"structured_outputs": {"grammar": made.text}}, made.unenforced)


def for_sglang(grammar: Grammar) -> Fields:
    """For SGLang with either of its backends that take a grammar."""
    tag = structural_tag(grammar)
    if tag is not None:
        return Fields({"structural_tag": json.dumps(tag.body)}, tag.unenforced)
    made = to_gbnf(unprefixed(grammar))
    return Fields({"ebnf": made.text}, made.unenforced)


def for_llama_server(grammar: Grammar, specials: Mapping[str, int] | None = None) -> Fields:
    """For llama-server. Without `specials`, what looks like a special token is asked to be kept: what is none does no harm."""
    made = to_gbnf(unprefixed(grammar), specials)
    literals = sorted(set(_literals(grammar)))
    words = specials if specials is not None else {word for text in literals for word in _TOKEN_LIKE.findall(text)}
    body: dict[str, Any] = {"grammar": made.text}
    if kept := sorted(word for word in words if any(word in text for text in literals)):
        body["preserved_tokens"] = kept
    if grammar.triggers:
        triggers = [{"type": _PATTERN, "value": rf"([\s\S]*?{_escaped(text)})"} for text in grammar.triggers]
        body |= {"grammar_lazy": True, "grammar_triggers": triggers}
    return Fields(body, made.unenforced)


def structural_tag(grammar: Grammar) -> Fields | None:
    """A grammar that waits for a trigger, as xgrammar's structural tag; None where nothing is waited for, or text is framed."""
    ways = list(_behind_triggers(grammar.start, grammar.triggers))
    if {trigger for trigger, _ in ways} != set(grammar.triggers) or not ways:
        return None
    made = [(trigger, to_gbnf(replace(grammar, start=rest, prefix="", triggers=()))) for trigger, rest in ways]
    tags = [
        {"type": "tag", "begin": trigger, "content": {"type": "grammar", "grammar": one.text}, "end": ""} for trigger, one in made
    ]
    # The grammar behind a trigger holds all calls of an answer: nothing comes after it.
    format = {"type": "triggered_tags", "triggers": list(grammar.triggers), "tags": tags, "stop_after_first": True}
    left = tuple(dict.fromkeys(item for _, one in made for item in one.unenforced))
    return Fields({"type": "structural_tag", "format": format}, left)


def _behind_triggers(node: Node, triggers: tuple[str, ...]) -> Iterator[tuple[str, Node]]:
    """What follows each trigger, where it ends free text."""
    match node:
        case Alt():
            for item in node.items:
                yield from _behind_triggers(item, triggers)
        case Seq(items=(Until(close=close), *rest)) if close in triggers:
            yield close, Seq(tuple(rest))
        case _:
            pass


# --- what the prompt has written already --------------------------------------------------------------------------------------


def unprefixed(grammar: Grammar) -> Grammar:
    """The grammar of what is still to come: a server's matcher begins where the model does, behind the prompt."""
    if not grammar.prefix:
        return grammar
    start = _behind(grammar.start, grammar.prefix)
    if start is None:
        raise UsageError(f"the prompt has begun the answer with {grammar.prefix!r}, and this target cannot begin behind it")
    return replace(grammar, start=start, prefix="")


def _behind(node: Node, text: str) -> Node | None:
    """What is left of a node once this text has been read; None where the node begins otherwise."""
    if not text:
        return node
    match node:
        case Lit():
            return Lit(node.text[len(text) :]) if node.text.startswith(text) else None
        case Seq(items=(Lit() as head, *rest)) if text.startswith(head.text):
            return _behind(Seq(tuple(rest)), text[len(head.text) :])
        case Seq(items=(head, *rest)):
            after = _behind(head, text)
            return None if after is None else Seq((after, *rest))
        case Alt():
            ways = [after for item in node.items if (after := _behind(item, text)) is not None]
            return Alt(tuple(ways)) if ways else None
        case Many(least=0, most=1):
            return _behind(node.item, text)
        case _:
            return None


def _literals(grammar: Grammar) -> Iterator[str]:
    """Every literal of a grammar, and its triggers."""
    todo: list[Node] = [grammar.start, *grammar.rules.values()]
    yield from grammar.triggers
    while todo:
        match todo.pop():
            case Lit(text=text) | Until(close=text):
                yield text
            case Seq(items=items) | Alt(items=items) | Record(items=items):
                todo += items
            case Many(item=item):
                todo.append(item)
            case _:
                pass


def _escaped(text: str) -> str:
    """Text as a regular expression of C++."""
    return re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", text)
