"""Writing a `Format` as a `response_template`: as much of it as one can say."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from callsmith.core.errors import UsageError
from callsmith.formats.algebra import (
    Calls,
    Each,
    Format,
    Hole,
    Ident,
    Nested,
    Node,
    Nodes,
    Notation,
    Obj,
    OneOf,
    Opt,
    Quotes,
    Raw,
    Says,
    Thinks,
    is_strong,
    literals_of,
    nodes_of,
)
from callsmith.formats.reader.markers import compile_markers
from callsmith.formats.write import literal_text

SPECIAL = frozenset("\\.^$*+?{}[]|()")
NAME_PATTERN = r"[\w./-]+"
KEY_PATTERN = r"[^\"\n]+?"
# A Python value: a string, brackets up to three deep, or a word.
QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
DEPTH = 3


@dataclass(frozen=True, slots=True)
class ResponseTemplate:
    """A response template, ready to be written as JSON, and what of the format it does not say."""

    template: dict[str, Any]
    lost: tuple[str, ...]


def format_to_response_template(format: Format, start_anchor: str, end: str = "") -> ResponseTemplate:
    """Write a format as a response template; a `UsageError` if its calls cannot be expressed.

    `start_anchor` is the end of the prompt, behind which the answer begins; `end` is what ends an answer (`<|im_end|>`), if its
    text is part of it.
    """
    says = [part for part in format.parts if isinstance(part, Says)]
    calls = _CallsWriter(format.calls, [pattern_of(nodes_of(part.open)) for part in says], end)
    fields: dict[str, Any] = {}
    if thinks := [part for part in format.parts if isinstance(part, Thinks)]:
        fields["reasoning_content"] = _reasoning(thinks, calls.opener(captures=False))
    fields["tool_calls"] = calls.field()
    ends = [pattern_of(nodes_of(marker)) for part in says for marker in (part.open, part.close) if marker]
    ends += [*calls.optional_ends(), *(_escape(marker.strip()) + r"\s*" for marker in (*_list_dropped(format), end) if marker)]
    # Markers around text close it and open it again: its pieces are joined.
    close = {"close_pattern": "|".join(dict.fromkeys(ends))} if ends else {}
    fields["content"] = {**close, "repeats": True, "join": ""}
    template = {"defaults": {"role": "assistant"}, "start_anchor": start_anchor, "fields": fields}
    return ResponseTemplate(template, (*calls.lost, *_lost(format)))


def _list_dropped(format: Format) -> list[str]:
    """The markers that mean nothing by themselves, without words and without those that begin another marker."""
    known = compile_markers(format).text_stops.texts
    return [
        item for item in format.drop if is_strong(item) and not any(other != item and other.startswith(item) for other in known)
    ]


def _lost(format: Format) -> Iterable[str]:
    """What no response template says."""
    if more := sum(isinstance(part, Calls) for part in format.parts) - 1:
        yield f"{more} more spelling{'s' * (more > 1)} of calls, which callsmith reads too"
    if any(isinstance(part, Quotes) for part in format.parts):
        yield "quoted text, in which nothing is a call"
    if words := [marker.strip() for marker in format.drop if marker not in _list_dropped(format)]:
        yield f"that {', '.join(map(repr, words))} alone means nothing"
    if format.ids:
        yield f"the pattern of call ids, {format.ids}"
    if format.calls.most:
        yield f"that there are at most {format.calls.most} calls"
    if format.calls.exact:
        yield "that the white space of markers counts"


def _reasoning(thinks: list[Thinks], call: str) -> dict[str, Any]:
    """The field of reasoning. `call` is the pattern of what opens a call, which may end it."""
    openers = [pattern_of(_settle(nodes_of(part.open))) for part in thinks]
    closers = [pattern_of(nodes_of(part.close)) for part in thinks]
    closers += [f"(?={call})"] if any(part.ended_by_calls for part in thinks) else []
    return {
        "open_pattern": "|".join(dict.fromkeys(openers)),
        "close_pattern": "|".join(dict.fromkeys(closers)),
        "content_args": {"strip": False},
    }


class _CallsWriter:
    """Writes the field of calls. `texts` are the patterns of what opens text, which a call must not be taken for."""

    def __init__(self, part: Calls, texts: list[str], end: str) -> None:
        self.part = part
        self.texts = texts
        self.end = f"(?:{_escape(end)}|$)" if end else "$"
        self.lost: list[str] = []
        at = next((at for at, node in enumerate(part.item) if isinstance(node, Obj | Each) or node is Hole.ARGS), None)
        if at is None or isinstance(part.values, Nested):
            raise UsageError("values as nested elements cannot be expressed in a response template")
        self.before, self.body, self.after = part.item[:at], part.item[at], part.item[at + 1 :]
        self.is_array = isinstance(self.body, Obj) and not self.before and not self.after and _opens_array(part.open)
        end = literal_text(part.close).strip()
        if end and not self.is_array and any(text.startswith(end) for node in part.open for text in literals_of(node)):
            raise UsageError("an end of calls that also begins them cannot be expressed in a response template")

    def field(self) -> dict[str, Any]:
        """The field, with patterns around the calls, how they are parsed, and what they are turned into."""
        patterns = {"open_pattern": self.opener(), "close_pattern": self._closer()}
        if self.is_array:
            return patterns | {"content": "json", "transform": self._transform(), "transform_each": True}
        return {**patterns, "repeats": True, **self._content(), "transform": self._transform()}

    def opener(self, captures: bool = True) -> str:
        """The pattern of what opens a call. `captures`: it captures the name."""
        section, before = pattern_of(self.part.open), self.before
        if self.is_array:
            marker = pattern_of(self.part.open[:-1])
            return marker + r"(?=\s*\[)" if marker else r"(?=\[\s*\{\s*" + f'"{self._first_key()}")'
        if isinstance(self.body, Obj) and not _has_marker(before):
            return _optional(section) + pattern_of(before) + r"(?=\{\s*" + f'"{self._first_key()}"' + r"\s*:)"
        call = pattern_of(before, name=captures and not isinstance(self.body, Obj))
        if not isinstance(self.body, Each) and _settle(before) != before:
            call += r"(?=\s*\{)"  # so that in a stream what is optional is waited for
        if _has_marker(before):
            mark = next(node for node in before if isinstance(node, str | OneOf))
            excluded = [text for text in self.texts if isinstance(mark, str) and text.startswith(_escape(mark.strip()))]
            return (f"(?!{'|'.join(excluded)})" if excluded else "") + _optional(section) + call
        if not section:
            raise UsageError("calls that no marker opens cannot be expressed in a response template")
        separator = self.part.between.strip()
        again = r"(?<=\))" + (rf"{_escape(separator)}\s*" if separator else r"\n")
        return f"(?:{section}|{again})" + call

    def optional_ends(self) -> list[str]:
        """The patterns of markers behind a call that may be missing: in a stream they come when it is closed already."""
        nodes = (*self.after[-1:], *self.part.close[-1:])
        optional = [node.nodes for node in nodes if isinstance(node, Opt) and node.nodes != ("]",)]
        return [pattern for item in (*optional, self.part.close) if (pattern := pattern_of(item)) and not self.is_array]

    def _first_key(self) -> str:
        key = self.body.fields[0][0] if isinstance(self.body, Obj) else None
        if not isinstance(key, str):
            raise UsageError("an object whose key is the tool's name cannot be expressed in a response template")
        return _escape(key)

    def _closer(self) -> str:
        part = self.part
        if self.is_array:
            ends = [pattern_of(item.nodes if isinstance(item, Opt) else (item,)) for item in part.close[1:]]
            is_sure = any(not isinstance(item, Opt) for item in part.close[1:])
            return r"(?<=\])\s*" + ("".join(ends) if is_sure else f"(?:{''.join(ends)}|{self.end})" if ends else self.end)
        if not self.after or (not _has_marker(self.before) and not isinstance(self.body, Obj)):
            return self._unmarked_closer()
        between, end = _escape(part.between.strip()), pattern_of(part.close)
        section = rf"\s*{_optional(end)}" if end else ""
        return pattern_of(self.after) + section + (rf"(?:\s*{between})?" if between else "") + r"\s*"

    def _unmarked_closer(self) -> str:
        """The pattern of the end of a call that nothing closes but the next one, the end of the section or of the answer."""
        end, separator = pattern_of(self.part.close), _escape(self.part.between.strip())
        if not end:
            self.lost.append("where a call ends if text follows it: the text is taken for a part of its arguments")
        if not self.after:
            return rf"(?<=\}})\s*(?:{separator}\s*(?={self.opener(captures=False)})|{end or self.end}\s*)"
        # `)`: the next call is opened by what separates them
        again = (rf"{separator}\s*" if separator else r"\n") + pattern_of(self.before)
        return rf"{pattern_of(self.after)}(?:\s*{end or self.end}\s*|(?={again}))"

    def _content(self) -> dict[str, Any]:
        values = self.part.values
        if not isinstance(self.body, Each):
            args = _notation_args(values) if isinstance(values, Notation) and self.body is Hole.ARGS else {}
            return {"content": "json"} | ({"content_args": args} if args else {})
        args: dict[str, Any] = {"tag_pattern": self._tag(self.body)}
        if isinstance(values, Raw):
            args["value_parser"] = {"name": "text", "args": {"strip": False}}
            self.lost.append("types of arguments: `parse_response` must be given `tools`, else all are strings")
            self.lost += ["entities (&amp;) in names"] if values.entities else []
            self.lost += ["values in <![CDATA[…]]>"] if values.cdata else []
        else:
            delimiters = [[quote, quote] for quote in ("'", '"')] if isinstance(values, Notation) and values.python else []
            args["value_parser"] = {"name": "json", "args": {"string_delims": delimiters, "allow_non_json": True}}
            self.lost.append("escapes in strings, and True, False and None inside of lists and objects")
        return {"content": "xml-inline", "content_args": args}

    def _tag(self, each: Each) -> str:
        """The pattern of one argument."""
        if not isinstance(self.part.values, Raw):
            return pattern_of(each.nodes, value=_python_value(), key=r"\w+")
        flags = "|".join(_escape(flag) for flag, _ in self.part.values.flags)
        return pattern_of(each.nodes, value=".*?", flags=flags or r"\w+")

    def _transform(self) -> dict[str, Any]:
        """What a parsed call is turned into: a tool call as chat templates take it."""
        if not isinstance(self.body, Obj):
            has_id = any(node is Hole.ID or isinstance(node, Ident) for node in self.before)
            if not has_id and Hole.ID in _flat(self.before):
                self.lost.append("ids of calls, which may be missing")
            function = {"name": "{name}", "arguments": "{content}"}
            return ({"id": "{id}"} if has_id else {}) | {"type": "function", "function": function}
        keys = {hole: str(key) for key, hole in self.body.fields}
        self._first_key()
        if not self.is_array and keys == {Hole.NAME: "name", Hole.ARGS: "arguments"}:
            return {"type": "function", "function": "{content}"}
        root = "" if self.is_array else "content."
        place = {hole: f"{{{root}{key}}}" for hole, key in keys.items()}
        if Hole.ID in keys:
            self.lost.append("that a call may have no id: without one it is an error")
        has_id = {"id": place[Hole.ID]} if Hole.ID in place else {}
        return {**has_id, "type": "function", "function": {"name": place[Hole.NAME], "arguments": place[Hole.ARGS]}}


def _opens_array(nodes: Nodes) -> bool:
    return bool(nodes) and nodes[-1] in (" [", "[", "[\n    ", Opt(("[",), True), Opt((" [",), True))


def _settle(nodes: Nodes) -> Nodes:
    """Nodes of which the last is not optional: a stream would not be waited for."""
    last = nodes[-1] if nodes else None
    if isinstance(last, OneOf):
        return (*nodes[:-1], last.texts[0])
    return (*nodes[:-1], *(last.nodes if last.write else ())) if isinstance(last, Opt) else nodes


def _has_marker(nodes: Nodes) -> bool:
    """Whether a literal comes before the name, so that nodes can be found in a text."""
    first = next((node for node in nodes if not isinstance(node, Opt)), None)
    return isinstance(first, str | OneOf)


def _flat(nodes: Nodes) -> Iterable[Node]:
    for node in nodes:
        yield node
        if isinstance(node, Opt):
            yield from _flat(node.nodes)


def _notation_args(values: Notation) -> dict[str, Any]:
    args: dict[str, Any] = {"string_delims": [[quote, quote] for quote in values.quotes]} if values.quotes != ('"',) else {}
    return args | ({"unquoted_keys": True} if values.bare_keys else {})


def _python_value() -> str:
    inner = rf"{QUOTED}|[^\[\](){{}}'\"]"
    nested = inner
    for _ in range(DEPTH):
        nested = rf"{inner}|[\[({{](?:{nested})*[\])}}]"
    return rf"{QUOTED}|[\[({{](?:{nested})*[\])}}]|[^,)]*"


# --- nodes as regular expressions -----------------------------------------------------------------------------------------


def pattern_of(nodes: Nodes, *, name: bool = False, key: str = KEY_PATTERN, value: str = "", flags: str = "") -> str:
    """Nodes as a regular expression. `name`: the name is captured, with the id; `value`: the pattern of a value, if it is."""
    parts: list[str] = []
    seen: set[Node] = set()
    for at, node in enumerate(nodes):
        beside = [nodes[near] for near in (at - 1, at + 1) if 0 <= near < len(nodes)]
        exact = (bool(at) and nodes[at - 1] is Hole.VALUE, at + 1 < len(nodes) and nodes[at + 1] is Hole.VALUE)
        match node:
            case str():
                parts.append(_literal(node, *exact))
            case OneOf():
                ways = dict.fromkeys(_literal(text, *exact) for text in node.texts)
                parts.append(f"(?:{'|'.join(ways)})")
            case Opt():
                captured = name and Hole.ID not in node.nodes and Hole.NAME not in seen
                parts.append(_optional(pattern_of(node.nodes, name=captured, key=key, flags=flags)))
            case Ident():
                inner = pattern_of(node.nodes, name=name)
                parts.append(f"(?P<id>{inner})" if name else inner)
            case Hole.NAME:
                parts.append(f"(?P<name>{NAME_PATTERN})" if name and node not in seen else NAME_PATTERN)
            case Hole.ID:
                parts.append(rf"(?P<id>{NAME_PATTERN})" if name else NAME_PATTERN)
            case Hole.INDEX:
                parts.append(r"\d+")
            case Hole.KEY:
                parts.append(f"(?P<key>{key})" if value and node not in seen else key)
            case Hole.TYPE:
                parts.append(f"(?P<type>{flags})")
            case Hole.VALUE:
                parts.append(f"(?P<value>{value})")
            case Hole.SKIP:
                parts.append(r"[^<\s]*")
            case _:
                raise UsageError(f"{type(node).__name__} beside {beside} cannot be expressed in a response template")
        seen.update(_flat((node,)))
    return "".join(parts)


def _literal(text: str, exact_start: bool, exact_end: bool) -> str:
    """A literal: white space at its edges is any, but beside a value in plain text it is one line break, or none."""
    core = text.strip()
    if not core:
        return r"\s*" if text else ""
    before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    lead = "".join(f"{_escape(item)}?" for item in before) if exact_start else r"\s*" if before else ""
    tail = "".join(f"{_escape(item)}?" for item in after) if exact_end else r"\s*" if after else ""
    return lead + _escape(core) + tail


def _escape(text: str) -> str:
    """A text as a regular expression."""
    escapes = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}
    return "".join(escapes.get(item) or (f"\\{item}" if item in SPECIAL else item) for item in text)


def _optional(pattern: str) -> str:
    return f"(?:{pattern})?" if pattern else ""


def response_template_text(template: ResponseTemplate) -> str:
    """A response template as JSON, as a tokenizer's settings have it."""
    return json.dumps({"response_template": template.template}, ensure_ascii=False, indent=2) + "\n"
