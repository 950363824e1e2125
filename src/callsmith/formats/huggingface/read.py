"""Reading a `response_template` as a `Format`."""

import json
import re
from dataclasses import dataclass
from typing import Any, cast

from callsmith.core.types.tables import Table, error_at
from callsmith.formats.algebra import (
    ARGS,
    ID,
    JSON,
    NAME,
    Calls,
    Each,
    Format,
    Hole,
    Ident,
    Node,
    Nodes,
    Obj,
    OneOf,
    Opt,
    Part,
    Says,
    Spelling,
    Thinks,
    literals_of,
)
from callsmith.formats.huggingface.patterns import (
    Ahead,
    Choices,
    Item,
    ParsedPattern,
    Space,
    nodes_from,
    take_apart,
)
from callsmith.formats.huggingface.values import read_arguments

TEMPLATE_KEYS = ("version", "defaults", "fields", "start_anchor", "start_anchor_pattern")
FIELD_KEYS = (
    "open", "open_pattern", "close", "close_pattern", "content", "content_args", "repeats", "join", "optional", "transform",
    "transform_each",
)  # fmt: skip
REASONING = ("reasoning_content", "reasoning", "thinking")


def format_from_response_template(template: Any, name: str = "response-template") -> Format:
    """Read a response template; a `UsageError` names the part that is wrong, or that no format can express."""
    table = Table.of(template, "response_template").check_keys(TEMPLATE_KEYS)
    if table.data.get("version", 1) != 1:
        raise error_at("response_template", f"version {table.get('version')!r} is not known; 1 is")
    field_table = table.required_object("fields")
    fields = {key: _read_field(field_table.required_object(key)) for key in field_table.data}
    if "tool_calls" not in fields:
        raise error_at("response_template.fields", "there are no `tool_calls`, so it says nothing of how calls are written")
    parts: list[Part] = [_read_calls(fields["tool_calls"])]
    drop: list[str] = []
    for key, field in fields.items():
        if key in REASONING:
            parts[:0] = _read_reasoning(field, str(table.get("start_anchor") or table.get("start_anchor_pattern")))
        elif key == "content":
            texts, markers = _read_text(field)
            parts += texts
            drop += markers
        elif key != "tool_calls":
            raise error_at(field.where, f"the field is not known; {', '.join((*REASONING, 'content', 'tool_calls'))} are")
    return Format(name, tuple(parts), drop=tuple(drop))


def format_from_tokenizer_config(text: str) -> Format:
    """Read the response template in the text of a `tokenizer_config.json`, or one that is a file of its own."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise error_at("the file", f"it is not JSON: {error}") from error
    table = Table.of(config, "the file").data
    if "fields" not in table and "response_template" not in table:
        raise error_at("the file", "it holds no response_template")
    return format_from_response_template(table.get("response_template", table))


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of the message: the patterns around it, and how its text is parsed."""

    where: str
    open: ParsedPattern | None
    close: ParsedPattern | None
    content: str
    args: Table
    transform: Any
    each: bool


def _read_field(table: Table) -> _Field:
    table.check_keys(FIELD_KEYS)
    return _Field(
        table.path,
        _read_marker(table, "open"),
        _read_marker(table, "close"),
        table.data.get("content", "text"),
        table.object("content_args") or Table({}, table.at("content_args")),
        table.get("transform"),
        bool(table.get("transform_each")),
    )


def _read_marker(table: Table, key: str) -> ParsedPattern | None:
    literal, pattern = table.get(key), table.text(f"{key}_pattern")
    texts = cast("list[Any]", literal if isinstance(literal, list) else [literal])
    if literal is not None and (pattern is not None or not texts or not all(isinstance(text, str) and text for text in texts)):
        raise table.error(key, f"expected a string or an array of strings, and no {key}_pattern beside it")
    if literal is not None:
        return ParsedPattern(tuple((text,) for text in texts), table.at(key))
    return None if pattern is None else take_apart(pattern, table.at(f"{key}_pattern"))


def _nodes(pattern: ParsedPattern | None) -> Nodes:
    """The nodes of a marker; alternatives that take no text (`$`, a look ahead) are left out."""
    if pattern is None:
        return ()
    ways = tuple(way for way in pattern.ways if any(not isinstance(item, Ahead) for item in way))
    return nodes_from(ParsedPattern(ways, pattern.where).only, pattern.where) if ways else ()


# --- text and reasoning -----------------------------------------------------------------------------------------------------


def _read_text(field: _Field) -> tuple[list[Says], list[str]]:
    """The parts of text, and markers that mean nothing by themselves. Text without an opener goes on behind its closer."""
    if field.open:
        return [Says(opener, _nodes(field.close)) for opener in _each_way(field.open)], []
    ways = _each_way(field.close) if field.close else []
    literals = [text.strip() for way in ways if len(way) == 1 for text in literals_of(way[0])]
    markers = tuple(dict.fromkeys(text for text in literals if text))
    openers = [way for way in ways if not (len(way) == 1 and literals_of(way[0]))]
    return [Says(opener, (OneOf(markers),) if markers else ()) for opener in openers], list(markers)


def _each_way(pattern: ParsedPattern) -> list[Nodes]:
    """The nodes of each alternative, or of all together if they are plain literals."""
    ways = [nodes for way in pattern.ways if (nodes := nodes_from(way, pattern.where))]
    texts = [nodes[0] for nodes in ways if len(nodes) == 1 and isinstance(nodes[0], str)]
    return ways if len(texts) < len(ways) or len(ways) < 2 else [(OneOf(tuple(texts)),)]


def _read_reasoning(field: _Field, anchor: str) -> list[Thinks]:
    closer = _nodes(field.close)
    if not closer:
        raise error_at(field.where, "reasoning needs `close` or `close_pattern`")
    openers = _each_way(field.open) if field.open else []
    if not openers:  # the prompt opens it: `<think>` is in the anchor, and only the closer in the answer
        closing = closer[0] if isinstance(closer[0], str) else ""
        opening = closing.strip().replace("/", "", 1)
        if "/" not in closing or opening not in anchor.replace("\\", ""):
            raise error_at(field.where, "neither `open` nor the end of `start_anchor` shows what opens the reasoning")
        openers = [(opening,)]
    ended_by_calls = field.close is not None and any(isinstance(item, Ahead) for way in field.close.ways for item in way)
    if field.args.data.get("strip", True):
        openers = [(*opener[:-1], _with_space(opener[-1], "", "\n")) for opener in openers]
        closer = (_with_space(closer[0], "\n", ""), *closer[1:])
    return [Thinks(_bare(opener), _bare(closer), ended_by_calls) for opener in openers]


def _with_space(node: Node, before: str, after: str) -> Node:
    """A literal with white space at its edges, where it has none yet."""
    if not isinstance(node, str):
        return node
    return ("" if node[:1].isspace() else before) + node + ("" if node[-1:].isspace() else after)


def _bare(nodes: Nodes) -> Nodes | str:
    return nodes[0] if len(nodes) == 1 and isinstance(nodes[0], str) else nodes


# --- calls ----------------------------------------------------------------------------------------------------------------


def _read_calls(field: _Field) -> Calls:
    section, separator, opener = _split_opener(field)
    closer, end = _split_closer(field)
    body, values = _read_body(field, opener)
    between = separator or _closing_separator(field)
    if field.each:
        return Calls(*body, open=(*section, *opener, "["), between=", ", close=("]", *closer, *end))
    if wrapped := _envelope(opener, body, closer):
        return Calls(*wrapped, open=section, between=between, close=end)
    item = (*opener, *body, *_list_unclosed(opener, closer, body), *closer)
    return Calls(*item, open=section, between=between, close=end, values=values)


def _closing_separator(field: _Field) -> str:
    """What separates calls, where the closing pattern has it: a separator, or white space behind the call."""
    ending = _section_end(field)
    parted = [separator for way in (ending.ways if ending else ()) if (separator := _separator(way)).strip()]
    ways = field.close.ways if field.close else ()
    return parted[0] if parted else "\n" if any(isinstance(way[-1], Space) for way in ways if way) else ""


def _split_opener(field: _Field) -> tuple[Nodes, str, Nodes]:
    """What opens a section of calls, what separates calls if it is not white space, and what opens a call."""
    if field.open is None:
        raise error_at(field.where, "calls need `open` or `open_pattern`")
    if len(field.open.ways) > 1:
        return (), "", _nodes(field.open)
    items, where = field.open.only, field.open.where
    first = next(iter(items), None)
    if isinstance(first, Choices):
        if first.optional and len(first.ways) == 1 and (ending := _section_end(field)) and ending.optional:
            return nodes_from(first.ways[0], where), "", nodes_from(items[1:], where)
        if len(first.ways) == 2 and (separator := _separator(first.ways[1])):
            return nodes_from(first.ways[0], where), separator, nodes_from(items[1:], where)
    return (), "", nodes_from(items, where)


def _separator(items: tuple[Item, ...]) -> str:
    """The text that parts two calls, if that is what the items are: a comma or semicolon, or a line break."""
    texts = [" " if isinstance(item, Space) else item for item in items if not isinstance(item, Ahead)]
    text = "".join(text for text in texts if isinstance(text, str))
    return text if len(text) >= len(texts) and text.strip() in (",", ";", "") else ""


def _section_end(field: _Field) -> Choices | None:
    """The optional end of the closing pattern, which closes a section of calls."""
    items = [item for item in field.close.only if not isinstance(item, Space | Ahead)] if field.close else []
    last = items[-1] if items else None
    return last if isinstance(last, Choices) and (last.optional or any(not _takes_text(way) for way in last.ways)) else None


def _takes_text(way: tuple[Item, ...]) -> bool:
    return any(not isinstance(item, Ahead | Space) for item in way)


def _split_closer(field: _Field) -> tuple[Nodes, Nodes]:
    """What closes a call, and what closes a section of calls."""
    if field.close is None:
        return (), ()
    where, end = field.close.where, _section_end(field)
    if end is None:
        return _trim(_nodes(field.close)), ()
    at = field.close.only.index(end)
    section = next((way for way in end.ways if _takes_text(way) and not _separator(way)), ())
    nodes = _trim(nodes_from(section, where))
    may_miss = not end.optional and any(not way for way in end.ways)
    return _trim(nodes_from(field.close.only[:at], where)), (Opt(nodes, write=False),) if nodes and may_miss else nodes


def _trim(nodes: Nodes) -> Nodes:
    """The nodes of a closer without the white space behind it, which may be any."""
    if not nodes or not isinstance(last := nodes[-1], str):
        return nodes
    return (*nodes[:-1], last.rstrip()) if last.strip() else nodes[:-1]


def _envelope(opener: Nodes, body: Nodes, closer: Nodes) -> Nodes:
    """The call as an object, where the patterns spell one around the name and the arguments; else nothing."""
    text = "".join("\0" if node is NAME else node if isinstance(node, str) else "\1" for node in opener)
    match = re.fullmatch(r'(.*?)\{\s*"(\w+)"\s*:\s*"\0"\s*,\s*"(\w+)"\s*:\s*', text, re.DOTALL)
    last = closer[0] if closer and isinstance(closer[0], str) else ""
    if not match or "\1" in text or body != (ARGS,) or not last.startswith("}"):
        return ()
    literals = (*((match[1],) if match[1] else ()), Obj(((match[2], NAME), (match[3], ARGS))), last[1:], *closer[1:])
    return tuple(node for node in literals if node != "")


def _list_unclosed(opener: Nodes, closer: Nodes, body: Nodes) -> Nodes:
    """The closing tags of elements that the opener opens and the closer does not close: text that the template skips."""
    if not any(isinstance(node, Each) for node in body):
        return ()
    tags = [tag for node in opener if isinstance(node, str) for tag in re.findall(r"<([\w:.-]+)", node)]
    closed = "".join(node for node in closer if isinstance(node, str))
    return tuple(Opt((f"</{tag}>\n",), write=True) for tag in reversed(tags) if f"</{tag}" not in closed)


def _read_body(field: _Field, opener: Nodes) -> tuple[Nodes, Spelling]:
    """What is between the markers of a call, and how values are written."""
    paths = _paths(field)
    captured = {node for node in opener if isinstance(node, Hole)} | {NAME for node in opener if isinstance(node, Ident)}
    if paths["name"] == "name" and NAME in captured and not field.each:
        if paths["arguments"] != "content":
            raise error_at(f"{field.where}.transform", "a captured name needs `{content}` as arguments")
        return read_arguments(field.content, field.args, field.where)
    roots = {key: path.removeprefix("content.") for key, path in paths.items() if field.each or path.startswith("content.")}
    if field.content != "json" or not {"name", "arguments"} <= roots.keys() or any("." in path for path in roots.values()):
        what = "a name must be captured by `(?P<name>…)`, or be a key of JSON content"
        raise error_at(f"{field.where}.transform", what)
    if field.args.data:
        raise error_at(f"{field.where}.content_args", "around a name, only plain JSON can be expressed")
    holes = {"id": ID, "name": NAME, "arguments": ARGS}
    return (Obj(tuple((roots[key], hole) for key, hole in holes.items() if key in roots)),), JSON


def _paths(field: _Field) -> dict[str, str]:
    """Where the transformation takes name, arguments and id from: `name`, `content`, `content.key`."""
    where = f"{field.where}.transform"
    whole = field.transform if field.transform is not None else {"function": "{content}"}
    transform = Table.of(whole, where).check_keys(("type", "function", "id")).data
    function = transform.get("function")
    if function == "{content}":
        function = {key: f"{{content.{key}}}" for key in ("name", "arguments")}
    members = dict(Table.of(function, f"{where}.function").check_keys(("name", "arguments")).data)
    members |= {"id": transform["id"]} if "id" in transform else {}
    paths = {key: re.fullmatch(r"\{([\w.]+)\}", value) for key, value in members.items() if isinstance(value, str)}
    if len(paths) < len(members) or not all(paths.values()) or not {"name", "arguments"} <= paths.keys():
        raise error_at(where, "name, arguments and id must each be one placeholder, as `{content}` or `{name}`")
    return {key: path[1] for key, path in paths.items() if path}
