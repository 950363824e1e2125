"""How the arguments of a call are written, as a response template parses them."""

from typing import Any

from callsmith.formats.algebra import ARGS, JSON, KEY, PYTHON, RAW, VALUE, Each, Nodes, Notation, Raw, Spelling
from callsmith.formats.huggingface.checks import Table, error_at, read_list, read_table
from callsmith.formats.huggingface.patterns import nodes_from, take_apart

TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")


def read_arguments(content: str, args: Table, where: str) -> tuple[Nodes, Spelling]:
    """The nodes of a call's arguments and how values are written, by the parser of its content. `where` is the field."""
    at = f"{where}.content_args"
    match content:
        case "json":
            return (ARGS,), _read_notation(args, at)
        case "xml-inline":
            if args.get("merge_duplicates"):
                raise error_at(at, "`merge_duplicates` cannot be expressed")
            pattern = take_apart(str(args.get("tag_pattern")), f"{at}.tag_pattern")
            nodes = nodes_from(pattern.only, pattern.where)
            if KEY not in nodes or VALUE not in nodes:
                raise error_at(pattern.where, "the groups `key` and `value` are needed, once each")
            values = _read_value_parser(args.get("value_parser"), pattern.types, at)
            return (Each(nodes, ", " if values is PYTHON else ""),), values
        case other:
            raise error_at(f"{where}.content", f"arguments as {other!r} cannot be expressed; json and xml-inline can")


def _read_notation(args: Table, where: str) -> Spelling:
    quotes = _read_quotes(args, where)
    if not quotes:
        return Notation(bare_keys=True) if args.get("unquoted_keys") else JSON
    return Notation(quotes, bool(args.get("unquoted_keys")), escapes=False, item_separator=",", key_separator=":")


def _read_quotes(args: Table, where: str) -> tuple[str, ...]:
    """What stands around strings, if it is not a quotation mark."""
    quotes: list[str] = []
    for pair in read_list(args.get("string_delims") or [], f"{where}.string_delims"):
        ends = read_list(pair, f"{where}.string_delims")
        if len(ends) != 2 or not all(isinstance(one, str) and one for one in ends):
            raise error_at(f"{where}.string_delims", "pairs of strings are expected")
        if ends[0] != ends[1]:
            raise error_at(f"{where}.string_delims", "strings that open and close differently cannot be expressed")
        quotes.append(ends[0])
    return tuple(quotes)


def _read_value_parser(parser: Any, types: tuple[str, ...], where: str) -> Spelling:
    table = read_table(parser or {"name": "text"}, f"{where}.value_parser", ("name", "args"))
    args = read_table(table.get("args", {}), f"{where}.value_parser.args")
    match table.get("name", "text"):
        case "text":
            return Raw(flags=_flags(types)) if types else RAW
        case "json" if quotes := _read_quotes(args, f"{where}.value_parser.args"):
            if not {*quotes} <= {"'", '"'}:
                raise error_at(
                    f"{where}.value_parser.args.string_delims", "in single values only Python's quotes can be expressed"
                )
            return PYTHON
        case "json":
            return RAW if args.get("allow_non_json") else JSON
        case other:
            raise error_at(f"{where}.value_parser", f"{other!r} cannot be expressed; text and json can")


def _flags(types: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The flags of types by what they mean: names of types mean themselves, true and false whether it is a string."""
    meanings = {kind: kind for kind in TYPES} | {"true": "string", "false": "json"}
    return tuple((kind, meanings.get(kind, "json")) for kind in types)
