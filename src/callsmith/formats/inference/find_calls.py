"""Finding the calls in a text whose format is not known.

    calls, content, fallback = find_calls(answer, tools)

The formats are tried one after another, and the first that finds a call is taken: first outside the reasoning, then on the text
without it, then bare JSON, Gemma's inline calls and plain `name(key=value)`, and at last inside the reasoning. What is in
code (fences, backticks) is an example and no call, unless a fence is all there is.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from callsmith.core.values import Call, Tool
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import Calls, Format, Part, Quotes, Says, Thinks, first_literals, is_strong, nodes_of
from callsmith.formats.reader.parse import Parsed, parse

CHAIN = ("hermes", "generic-xml", "qwen3-coder", "mistral", "llama3-json", "pythonic", "granite", "xlam")
BARE_FORMATS = ("json", "gemma4", "plain-call")  # tried behind the chain, in the text without reasoning
CODE = (
    Quotes("```", "```"),
    Quotes("~~~", "~~~"),
    Quotes("``", "``", one_line=True),
    Quotes("`", "`", one_line=True),
)
_LAST = ("json", "gemma4")  # formats whose calls may look like other text
_NEVER = ("plain-call", "fenced-json", "json-array")  # those that are as likely an example
_TOKEN = "<|"  # how special tokens begin
_ORDER = (Thinks, Calls, Quotes, Says)
FENCED = re.compile(r"(```|~~~)[\w-]*\n(?P<code>((?!\1).)*)\1", re.DOTALL)


class FoundCalls(NamedTuple):
    """Calls that were found in a text, the text without calls and reasoning, and whether there are any calls."""

    calls: tuple[Call, ...]
    content: str
    fallback: bool


def find_calls(
    text: str, tools: Iterable[Tool] = (), formats: Sequence[str] | None = None, *, recover: bool = True
) -> FoundCalls:
    """Find the calls in a text, and what is left for the user. A call without an id gets `NAME_INDEX`.

    `formats` are tried instead of the common ones, in this order; with those that write calls in fences, fences count.
    Without `recover` nothing inside the reasoning is a call; turn it off for text that others may have written.
    """
    tools, names = tuple(tools), tuple(formats or CHAIN)
    chain = [without_code(format_named(name), keep_fenced=formats is not None) for name in names]
    thinks = tuple(dict.fromkeys(part for format in chain for part in format.parts if isinstance(part, Thinks)))
    chain = [replace(format, parts=tuple(dict.fromkeys((*thinks, *format.parts)))) for format in chain]
    plain = parse(Format("text", thinks), text)
    attempt, empty = next(_attempts(chain, text, plain, tools, recover=recover), None), _empty(names)
    if attempt is None:
        return FoundCalls((), _said(chain, text, tools, empty), False)
    calls = [replace(call, id=call.id or f"{call.name}_{index}") for index, call in enumerate(attempt.calls)]
    edges = re.compile(rf"^(?:{empty}\s*)+|(?:\s*{empty})+$")
    return FoundCalls(tuple(calls), edges.sub("", attempt.content.strip()).strip(), True)


def _attempts(chain: Sequence[Format], text: str, plain: Parsed, tools: tuple[Tool, ...], *, recover: bool) -> Iterator[Parsed]:
    """The readings that find calls, the best first. `plain` is the text without its reasoning, and the reasoning."""
    names = {tool.name for tool in tools}

    def readings(formats: Iterable[Format], text: str, *, only_known: bool) -> Iterator[Parsed]:
        for format in formats:
            parsed = parse(format, text, tools, recover=False)
            if parsed.calls and (not only_known or all(call.name in names for call in parsed.calls)):
                yield parsed

    json, *by_name = (without_code(format_named(name)) for name in BARE_FORMATS)
    whole = readings(chain, text, only_known=False)
    if first := next(whole, None):  # another format may know what is left over for one of its markers
        others = [item for item in whole if item.calls == first.calls] if first.content.strip() else []
        yield min((first, *others), key=lambda candidate: len(candidate.content))
    yield from readings((*chain, json), plain.content, only_known=False)
    yield from readings(by_name, plain.content, only_known=True)
    if fence := FENCED.fullmatch(plain.content.strip()):
        yield from readings((*chain, json), fence["code"], only_known=bool(tools))
    if recover:
        inside = readings(chain, plain.reasoning, only_known=bool(tools))
        yield from (replace(parsed, content=plain.content) for parsed in inside)


def without_code(format: Format, *, keep_fenced: bool = False) -> Format:
    """The format, in which code is text. `keep_fenced`: its own parts that open with a fence stay."""

    def opens_fenced(part: Part) -> bool:
        openers = first_literals(part.open, first_literals(part.item)) if isinstance(part, Calls) else ()
        return any(text.startswith("```") for text in openers)

    parts = [part for part in format.parts if keep_fenced or not opens_fenced(part)]
    return replace(format, parts=(*parts, *(quotes for quotes in CODE if quotes not in parts)))


@cache
def _empty(names: tuple[str, ...]) -> str:
    """A pattern of what is left around calls that were taken out: an empty list, an empty fence, a format's markers alone."""
    sections = [
        (*part.open, *part.item, *part.close) for name in names for part in format_named(name).parts if isinstance(part, Calls)
    ]
    markers = {
        rf"{re.escape(first)}\s*{re.escape(last)}"
        for section in sections
        for first in filter(is_strong, first_literals(section))
        for last in filter(is_strong, first_literals(section[::-1]))
    }
    return "(?:" + "|".join([r"\[\s*\]", r"```[\w-]*\s*```", *sorted(markers)]) + ")"


def _said(chain: Sequence[Format], text: str, tools: tuple[Tool, ...], empty: str) -> str:
    """The text for the user where there is no call; empty where it is only an empty list of calls in one of the formats."""
    contents = [parse(format, text, tools, recover=False).content.strip() for format in chain]
    return contents[0] if all(contents) and not re.fullmatch(empty, contents[0]) else ""


@cache
def any_format() -> Format:
    """One format that reads what any of them writes, the common ones first: for text of a model of which nothing is known.

    Unlike `find_calls` it reads a stream. What has no marker of its own is a call only with the name of a known tool.
    """
    known = formats()
    others = (name for name in known if name not in (*CHAIN, *_LAST, *_NEVER))
    return combined_format([known[name] for name in (*CHAIN, *others, *_LAST)])


def combined_format(several: Iterable[Format]) -> Format:
    """The format that reads what any of these writes, in this order, and in which code is text."""
    plain = [without_code(format) for format in several]
    known = dict.fromkeys(part for format in plain for part in format.parts if _is_certain(part))
    parts = sorted(known, key=lambda part: _ORDER.index(type(part)))
    drop = tuple(dict.fromkeys(text for format in plain for text in format.drop if text.startswith(_TOKEN)))
    return Format("any", tuple(parts), drop=drop)


def _is_certain(part: Part) -> bool:
    """Whether a part is not to be mistaken for other text: `<answer>` may well be one's own."""
    return not isinstance(part, Says) or all(text.startswith(_TOKEN) for text in first_literals(nodes_of(part.open)))
