"""Reading values with brackets and quotes: from a family's notation to JSON text, piece by piece.

`push` is given the JSON text as soon as it is certain; `repair` is given the name of each repair.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from callsmith.formats.algebra import JSON, Notation
from callsmith.formats.reader.markers import SPECIAL_MARK
from callsmith.formats.reader.source import MAX_WORD, Emit, Incremental, Mismatch, Stops, TextSource, Truncated, stops
from callsmith.formats.reader.typed import (
    MAX_DEPTH,
    STRING,
    ValueSchema,
    bare_word_json,
    declared_keys,
    json_string,
    meant_key,
    parse_json,
    typed_json,
    types_of,
)
from callsmith.formats.reader.whole.values import whole_json

_RUN = 256  # characters at most that are looked through for escapes at a time: not over and over again if they do not do
ESCAPES = {"u": 6, "U": 10, "x": 4}
WORD_END = stops((",", "}", "]", ")", ":", "\n", " ", "<"))
ZEROS_FIRST = re.compile(r"[+-]?0[0-9]+")  # no number in JSON
BARE_END = stops((",", "}", "]"))
AFTER_STRING = ",:}])<["  # what may follow a string in a notation, or end the value where its brackets are missing
CALL_END = ")"  # closes a Python call, and is opened by no value
KEY_END = stops((":", "}", ",", "\n"))
# By opening bracket: the closing one, followed by the JSON text that is pushed for it.
BRACKETS = {"{": "}}", "[": "]]", "(": ")]"}
BRACE = "{"  # encloses a string that may be a key
SET = "}]"
DICT_OR_SET = "}{}"  # Python's braces, before the first item shows which


class Sink(NamedTuple):
    """Two callbacks: one takes JSON text, the other the names of repairs. `follows_schema`: keys and values are corrected."""

    push: Emit
    repair: Emit
    follows_schema: bool = False


def read_notation(
    source: TextSource, spelling: Notation, sink: Sink, schema: ValueSchema | None = None, ends: tuple[str, ...] = ()
) -> Incremental[None]:
    """Read one value of a notation, nested ones included. Iterative, so that the stack does not limit the depth.

    With a schema, bare words follow it; if the sink says so, also keys in another case and values of another type, which can mean
    only one thing. At `ends`, open brackets are closed; a string that contains one of them as a special token is not closed.
    """
    push = sink.push
    is_json = spelling.is_json and (yield from source.peek()) in '{["'
    if is_json and (whole := whole_json(source.text, source.pos, schema if sink.follows_schema else None)):
        source.pos = whole.end
        push(whole.text)
        return
    next_schema = schema  # of the value that comes next
    schemas: list[ValueSchema | None] = []  # of the open objects; of the items of the open lists
    seen: list[set[str]] = []  # the keys of the open objects
    special_ends = tuple(end for end in ends if SPECIAL_MARK in end)
    closers: list[str] = []
    has_key = False  # a key and its colon have been read
    count = [0]
    while True:
        char = yield from source.peek()
        if closers and not has_key and char == closers[-1][0]:
            source.pos += 1
            push(closers.pop()[1:])
            for stack in (count, schemas, seen):
                stack.pop()
        else:
            if closers and not has_key:
                if count[-1] and not (yield from _read_comma(source, sink, closers, ends)):
                    if closers:
                        continue
                    return
                count[-1] += 1
                if closers[-1] == DICT_OR_SET:
                    closers[-1] = yield from _read_dict_or_set_start(source, spelling, sink)
                    has_key = closers[-1] != SET
                    next_schema = None
                    schemas[-1] = schemas[-1] if has_key else None
                    continue
                if closers[-1] == BRACKETS["{"]:
                    inner = schemas[-1]
                    key = yield from _read_key(source, spelling, sink, inner, seen[-1])
                    next_schema = inner.property(key) if inner else None
                    has_key = True
                    continue
                next_schema = schemas[-1]
            has_key = False
            enclosing = (CALL_END,) * spelling.python + tuple(closer[0] for closer in closers)
            opened = yield from _read_value_start(source, spelling, sink, next_schema, enclosing, special_ends)
            if opened:
                known = next_schema if next_schema and next_schema.schema else None
                schemas.append(known.items() if known and opened[0] != "}" else known)
                seen.append(set())
                if len(closers) >= MAX_DEPTH:
                    raise Mismatch("nested too deep")
                closers.append(opened)
                count.append(0)
                continue
        if not closers:
            return


def _read_comma(source: TextSource, sink: Sink, closers: list[str], ends: tuple[str, ...]) -> Incremental[bool]:
    """Read the comma before another item; False if none follows: after the last comma, or where all brackets are left open."""
    if (yield from source.at((",",))):
        source.pos += 1
        if (yield from source.peek()) == closers[-1][0]:
            return False
        sink.push(", ")
        return True
    if not ends or not (yield from source.at(ends)):
        raise Mismatch(f"expected ',' or '{closers[-1][0]}'")
    sink.repair("missing-close")
    while closers:
        sink.push(closers.pop()[1:])
    return False


def _read_value_start(
    source: TextSource,
    spelling: Notation,
    sink: Sink,
    schema: ValueSchema | None,
    enclosing: tuple[str, ...],
    ends: tuple[str, ...],
) -> Incremental[str]:
    """Read a string or bare word and return "", or open a bracket and return its closer. `enclosing`: the open closers."""
    char = yield from source.peek()
    if char == "{" or char == "[" or (char == "(" and spelling.python):
        source.pos += 1
        if char == "{" and spelling.python:
            return DICT_OR_SET
        sink.push("{" if char == "{" else "[")
        return BRACKETS[char]
    quote = yield from _read_quote(source, spelling, sink)
    if quote:
        types = types_of(schema.root, schema.schema) if schema and sink.follows_schema else STRING
        if types >= STRING:
            yield from read_string(source, quote, spelling, sink, enclosing, ends)
            return ""
        pieces: list[str] = []
        yield from read_string(source, quote, spelling, Sink(pieces.append, sink.repair), enclosing, ends)
        sink.push(_typed_string("".join(pieces), types, sink))
        return ""
    word: list[str] = []
    if (yield from source.read_until(BARE_END if spelling.bare_keys else WORD_END, word.append)) is None:
        raise Truncated("the text ended in a value")
    text = "".join(word).strip()
    if not text:
        raise Mismatch("a value is missing")
    if text[-1] in spelling.quotes and spelling.escapes:
        raise Mismatch("a quote is missing")
    if spelling == JSON and not (text in ("true", "false", "null") or text[0] in "-0123456789"):
        sink.repair("python-literals")
    sink.push(_bare_word_json(text, spelling, schema, sink))
    return ""


def _typed_string(text: str, types: frozenset[str], sink: Sink) -> str:
    """A JSON string as a value of one of the types, if it can be one."""
    meant = typed_json(str(parse_json(text)), types)
    if meant.startswith('"'):
        return text
    sink.repair("value-type")
    return meant


def _bare_word_json(text: str, spelling: Notation, schema: ValueSchema | None, sink: Sink) -> str:
    """A bare word as JSON text. A string of relaxed notations, and a number with zeros before it, are what the schema says."""
    has_zeros = ZEROS_FIRST.fullmatch(text)
    if schema and schema.schema and (spelling.bare_keys or has_zeros or sink.follows_schema):
        types = types_of(schema.root, schema.schema)
        if (types == STRING and spelling.bare_keys) or has_zeros:
            return typed_json(text, types)
        if types <= STRING | {"null"} and sink.follows_schema and bare_word_json(text)[0] not in '"n':
            sink.repair("value-type")
            return json_string(text)
    return bare_word_json(text)


def _read_dict_or_set_start(source: TextSource, spelling: Notation, sink: Sink) -> Incremental[str]:
    """Read the first key and colon of a Python dict, or the first item of a set; returns the closer of the one it is."""
    buffered: list[str] = []
    quote = yield from _read_quote(source, spelling, sink)
    if quote:
        yield from read_string(source, quote, spelling, Sink(buffered.append, sink.repair), (BRACE,))
        yield from source.peek()
    elif (yield from source.read_until(KEY_END, buffered.append)) is None:
        raise Truncated("the text ended in a value")
    text = "".join(buffered).strip()
    if not (yield from source.at((":",))):
        sink.push("[" + (text if quote else bare_word_json(text)))
        return SET
    if not quote:
        sink.repair("bare-keys")
    source.pos += 1
    sink.push("{" + (text if quote else json_string(text)) + ": ")
    return BRACKETS["{"]


def _read_quote(source: TextSource, spelling: Notation, sink: Sink) -> Incremental[str | None]:
    quote = yield from source.at(spelling.quotes if "'" in spelling.quotes else (*spelling.quotes, "'", '"'))
    if quote:
        source.pos += len(quote)
        if quote not in spelling.quotes:
            sink.repair("other-quotes")
    return quote


def _read_key(source: TextSource, spelling: Notation, sink: Sink, schema: ValueSchema | None, seen: set[str]) -> Incremental[str]:
    """Read a key and its colon; returns the key. `seen` are the keys of this object so far."""
    yield from source.peek()
    declared = declared_keys(schema.root, schema.schema) if schema and sink.follows_schema else ()
    read = sent = ""  # as JSON text; what may still be corrected is not sent

    def push(text: str) -> None:
        nonlocal read, sent
        read += text
        certain = read[: max(_shared_length(json_string(name), read) for name in declared)] if declared else read
        if len(certain) > len(sent):
            sink.push(certain[len(sent) :])
            sent = certain

    quote = yield from _read_quote(source, spelling, sink)
    if quote:
        yield from read_string(source, quote, spelling, Sink(push, sink.repair))
        key = str(parse_json(read))
    else:
        word: list[str] = []
        stop = yield from source.read_until(KEY_END, word.append)
        key = "".join(word).strip()
        if stop is None:
            raise Truncated("the text ended in a key")
        if stop != ":" or not key:
            raise Mismatch("a key is missing")
        if not spelling.bare_keys:
            sink.repair("bare-keys")
        push(json_string(key))
    meant = meant_key(key, declared, seen)
    if meant != key and json_string(meant).startswith(sent):
        sink.repair("key-case")
        key, read = meant, json_string(meant)
    if len(read) > len(sent):
        sink.push(read[len(sent) :])
    seen.add(key)
    if (yield from source.peek()) != ":":
        raise Mismatch("expected ':'")
    source.pos += 1
    sink.push(": ")
    return key


def _shared_length(one: str, other: str) -> int:
    """The length of the common start of two texts."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def read_string(
    source: TextSource,
    quote: str,
    spelling: Notation,
    sink: Sink,
    enclosing: tuple[str, ...] = (),
    ends: tuple[str, ...] = (),
) -> Incremental[None]:
    """Read the rest of a string whose opening quote was read, as a JSON string, which contains none of `ends`.

    `enclosing` are the closers of open brackets.
    """
    push = sink.push
    escapes = quote[0] in "'\"" and (spelling.escapes or quote not in spelling.quotes)
    wanted = stops((quote, "\\", *ends) if escapes else (quote, *ends))

    def emit(text: str) -> None:
        # Text between double quotes is JSON already, but for control characters that a model did not escape.
        push(text if escapes and quote == '"' and text.isprintable() else json_string(text)[1:-1])

    push('"')
    while True:
        stop = yield from source.read_until(wanted, emit)
        if stop is None:
            raise Truncated("the text ended in a string")
        if stop in ends:
            raise Mismatch("a string is not closed")
        if stop == quote:
            if enclosing and escapes and not (yield from _ends_string(source, len(quote), enclosing)):
                sink.repair("unescaped-quotes")
                source.pos += len(quote)
                emit("\\" * (quote == '"') + quote)
                continue
            source.pos += len(quote)
            push('"')
            return
        run = _escapes_until(wanted).match(source.text, source.pos, source.pos + _RUN) if quote == '"' else None
        if run and run[0].isprintable():
            source.pos = run.end()
            push(run[0])
        else:
            push((yield from _read_escape(source, python=spelling.python)))


@lru_cache(256)
def _escapes_until(wanted: Stops) -> re.Pattern[str]:
    """JSON's own escapes, which stay as they are, with what lies between them and begins no stop."""
    return re.compile(rf'(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}})[^{wanted.first_chars.pattern[1:]}*)+')


def _ends_string(source: TextSource, offset: int, enclosing: tuple[str, ...]) -> Incremental[bool]:
    """Whether a quote ends its string: what follows it may follow a string, and is not more of a text with unescaped quotes."""
    depth = len(enclosing)
    while True:
        char, offset = yield from source.peek_after(offset)
        if not char or char in "<[":
            return True
        if char not in AFTER_STRING or offset > MAX_WORD:
            return char in AFTER_STRING
        if enclosing[depth - 1] == BRACE:
            return True
        if char == ",":
            return (yield from _item_follows(source, offset + 1, enclosing[:depth]))
        if char != enclosing[depth - 1]:
            return False
        offset += 1
        depth -= 1
        if not depth:
            following = (yield from source.peek_after(offset))[0] if char == CALL_END else ""
            return not following or following not in ")'\""


def _item_follows(source: TextSource, offset: int, enclosing: tuple[str, ...]) -> Incremental[bool]:
    """Whether another item follows a comma: in an object a key, in a call a name; in a list it may be anything."""
    call = enclosing == (CALL_END,)
    char, offset = yield from source.peek_after(offset)
    if not char or char in ("<", enclosing[-1]) or not (call or enclosing[-1] == "}") or (not call and char in "\"'"):
        return True
    _, following = yield from source.peek_word(offset)
    return following in ("", "=" if call else ":")


def _read_escape(source: TextSource, *, python: bool) -> Incremental[str]:
    kind = (yield from source.peek_chars(2))[1]
    length = ESCAPES[kind] if kind == "u" or (python and kind in ESCAPES) else 2
    text = yield from source.peek_chars(length)
    source.pos += length
    if kind in '"\\/bfnrt':
        return text
    if kind == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", text[2:]):
        return text
    if kind == "'":
        return "'"
    if kind == "\n" and python:
        return ""
    if kind in "xU" and python:
        try:
            return json_string(chr(int(text[2:], 16)))[1:-1]
        except (ValueError, OverflowError):
            pass
    return json_string(text)[1:-1]  # not an escape: a literal backslash
