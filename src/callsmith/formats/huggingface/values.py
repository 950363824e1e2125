"""How the arguments of a call are written, as a response template parses them."""

from callsmith.core.types.tables import Table, as_list, error_at
from callsmith.formats.algebra import ARGS, JSON, KEY, PYTHON, RAW, VALUE, Each, Nodes, Notation, Raw, Spelling
from callsmith.formats.huggingface.patterns import nodes_from, take_apart

TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")


def read_arguments(content: str, args: Table, where: str) -> tuple[Nodes, Spelling]:
    """The nodes of a call's arguments and how values are written, by the parser of its content. `where` is the field."""
    match content:
        case "json":
            return (ARGS,), _read_notation(args)
        case "xml-inline":
            if args.get("merge_duplicates"):
                raise error_at(args.path, "`merge_duplicates` cannot be expressed")
            pattern = take_apart(str(args.get("tag_pattern")), args.at("tag_pattern"))
            nodes = nodes_from(pattern.only, pattern.where)
            if KEY not in nodes or VALUE not in nodes:
                raise error_at(pattern.where, "the groups `key` and `value` are needed, once each")
            values = _read_value_parser(args, pattern.types)
            return (Each(nodes, ", " if values is PYTHON else ""),), values
        case other:
            raise error_at(f"{where}.content", f"arguments as {other!r} cannot be expressed; json and xml-inline can")


def _read_notation(args: Table) -> Spelling:
    quotes = _read_quotes(args)
    if not quotes:
        return Notation(bare_keys=True) if args.get("unquoted_keys") else JSON
    return Notation(quotes, bool(args.get("unquoted_keys")), escapes=False, item_separator=",", key_separator=":")


def _read_quotes(args: Table) -> tuple[str, ...]:
    """What is around strings, if it is not a quotation mark."""
    quotes: list[str] = []
    for pair in args.array("string_delims") or ():
        ends = as_list(pair)
        if len(ends) != 2 or not all(isinstance(end, str) and end for end in ends):
            raise args.error("string_delims", "pairs of strings are expected")
        if ends[0] != ends[1]:
            raise args.error("string_delims", "strings that open and close differently cannot be expressed")
        quotes.append(ends[0])
    return tuple(quotes)


def _read_value_parser(content_args: Table, types: tuple[str, ...]) -> Spelling:
    table = Table.of(content_args.get("value_parser") or {}, content_args.at("value_parser")).check_keys(("name", "args"))
    args = table.object("args") or Table({})
    match table.data.get("name", "text"):
        case "text":
            return Raw(flags=_flags(types)) if types else RAW
        case "json" if quotes := _read_quotes(args):
            if not {*quotes} <= {"'", '"'}:
                raise args.error("string_delims", "in single values only Python's quotes can be expressed")
            return PYTHON
        case "json":
            return RAW if args.get("allow_non_json") else JSON
        case other:
            raise error_at(table.path, f"{other!r} cannot be expressed; text and json can")


def _flags(types: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The flags of types by what they mean: names of types mean themselves, true and false whether it is a string."""
    meanings = {kind: kind for kind in TYPES} | {"true": "string", "false": "json"}
    return tuple((kind, meanings.get(kind, "json")) for kind in types)
