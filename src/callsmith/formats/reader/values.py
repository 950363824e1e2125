"""Reading argument values: from a family's spelling to JSON text, piece by piece.

`push` is given the JSON text as soon as it is certain. A string streams; a value whose type is not yet known is buffered to its
end, so that nothing pushed has to be taken back. `repair` is given the name of each repair.
"""

import re
from typing import NamedTuple

from callsmith.core.values import Schema
from callsmith.formats.algebra import JSON, Nested, Notation, Raw
from callsmith.formats.reader.source import MAX_WORD, Emit, Incremental, Mismatch, Stops, TextSource, Truncated, stops
from callsmith.formats.reader.typed import bare_word_json, items_of, json_string, property_of, typed_json, types_of

MAX_DEPTH = 100
STRING = frozenset({"string"})
ESCAPES = {"u": 6, "U": 10, "x": 4}
WORD_END = stops((",", "}", "]", ")", ":", "\n", " "))
BARE_END = stops((",", "}", "]"))
TAG_END = stops((">",))
TAG_NAME = re.compile(r"[^<>\n]+")
STRING_END = stops(('"', "\\"))
AFTER_STRING = ",:}])<["  # what may follow a string in a notation, or end the value where its brackets are missing
CALL_END = ")"  # closes a Python call, and is opened by no value
KEY_END = stops((":", "}", ",", "\n"))
# By opening bracket: the closing one, followed by the JSON text that is pushed for it.
BRACKETS = {"{": "}}", "[": "]]", "(": ")]"}
BRACE = "{"  # encloses a string that may be a key
SET = "}]"
DICT_OR_SET = "}{}"  # Python's braces, before the first item shows which
CDATA = "<![CDATA["
CDATA_END = stops(("]]>",))


class Sink(NamedTuple):
    """Two callbacks: one takes JSON text, the other the names of repairs."""

    push: Emit
    repair: Emit


def read_notation(
    source: TextSource, spelling: Notation, sink: Sink, schema: Schema | None = None, ends: tuple[str, ...] = ()
) -> Incremental[None]:
    """Read one value of a notation, nested ones included. Iterative, so that the stack does not limit the depth.

    With the schema of an object, a bare word is a string where the schema demands one. At `ends`, open brackets are closed.
    """
    push = sink.push
    bare_is_string = False  # a bare word here is a string
    closers: list[str] = []
    has_key = False  # a key and its colon have been read
    count = [0]
    while True:
        char = yield from source.peek()
        if closers and not has_key and char == closers[-1][0]:
            source.pos += 1
            push(closers.pop()[1:])
            count.pop()
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
                    continue
                if closers[-1] == BRACKETS["{"]:
                    key = yield from _read_key(source, spelling, sink)
                    bare_is_string = (
                        bool(schema) and len(closers) == 1 and types_of(schema, property_of(schema, schema, key)) == STRING
                    )
                    has_key = True
                    continue
            has_key = False
            enclosing = (CALL_END,) * spelling.python + tuple(closer[0] for closer in closers)
            opened = yield from _read_value_start(source, spelling, sink, enclosing=enclosing, bare_is_string=bare_is_string)
            if opened:
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
    source: TextSource, spelling: Notation, sink: Sink, *, enclosing: tuple[str, ...], bare_is_string: bool
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
        yield from read_string(source, quote, spelling, sink, enclosing)
        return ""
    word: list[str] = []
    if (yield from source.read_until(BARE_END if spelling.bare_keys else WORD_END, word.append)) is None:
        raise Truncated("the text ended in a value")
    text = "".join(word).strip()
    if not text:
        raise Mismatch("a value is missing")
    if spelling == JSON and not (text in ("true", "false", "null") or text[0] in "-0123456789"):
        sink.repair("python-literals")
    sink.push(json_string(text) if bare_is_string else bare_word_json(text))
    return ""


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


def _read_key(source: TextSource, spelling: Notation, sink: Sink) -> Incremental[str]:
    """Read a key and its colon; returns the key if it is a bare word, else ""."""
    yield from source.peek()
    key = ""
    quote = yield from _read_quote(source, spelling, sink)
    if quote:
        yield from read_string(source, quote, spelling, sink)
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
        sink.push(json_string(key))
    if (yield from source.peek()) != ":":
        raise Mismatch("expected ':'")
    source.pos += 1
    sink.push(": ")
    return key


def read_string(
    source: TextSource, quote: str, spelling: Notation, sink: Sink, enclosing: tuple[str, ...] = ()
) -> Incremental[None]:
    """Read the rest of a string whose opening quote was read, as a JSON string. `enclosing`: the closers of open brackets."""
    push = sink.push
    escapes = quote[0] in "'\"" and (spelling.escapes or quote not in spelling.quotes)
    wanted = stops((quote, "\\") if escapes else (quote,))

    def emit(text: str) -> None:
        # Text between double quotes is JSON already, but for control characters that a model did not escape.
        push(text if escapes and quote == '"' and text.isprintable() else json_string(text)[1:-1])

    push('"')
    while True:
        stop = yield from source.read_until(wanted, emit)
        if stop is None:
            raise Truncated("the text ended in a string")
        if stop == quote:
            if enclosing and escapes and not (yield from _ends_string(source, len(quote), enclosing)):
                sink.repair("unescaped-quotes")
                source.pos += len(quote)
                emit("\\" * (quote == '"') + quote)
                continue
            source.pos += len(quote)
            push('"')
            return
        push((yield from _read_escape(source, python=spelling.python)))


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
        return "/" if kind == "/" else text
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


class ValueSchema(NamedTuple):
    """What is known of a value before it is read: the whole schema, its own schema, and its type flag if it has one."""

    root: Schema
    schema: Schema
    flag: str | None = None

    def types(self, spelling: Raw) -> frozenset[str]:
        """The types the value may have: those of the schema, narrowed by the flag as far as the schema allows."""
        types = types_of(self.root, self.schema)
        meant = dict(spelling.flags).get(self.flag or "")
        if meant is None:
            return types
        if meant == "json":
            return types - STRING or types
        return types & {meant} or types


class Bounds(NamedTuple):
    """What ends a value in plain text, and the white space that the format itself puts before and after the value."""

    closers: tuple[str, ...]
    before: str
    after: str


def read_raw(source: TextSource, spelling: Raw, bounds: Bounds, schema: ValueSchema, push: Emit) -> Incremental[None]:
    """Read a value as plain text up to one of its closers, which is left unread."""
    types = schema.types(spelling)
    closers, before, after = bounds
    wanted = stops(tuple(after + closer for closer in closers) + closers) if after else stops(closers)
    if before and (yield from source.at((before,))) and not (yield from source.at(wanted.texts)):
        source.pos += len(before)
    if spelling.cdata and (yield from source.at_after_space((CDATA,))):
        yield from source.skip_space()
        source.pos += len(CDATA)
        end = yield from _read_leaf(source, CDATA_END, types, push)
        source.pos += len(end)
        yield from source.skip_space()
        return
    stop = yield from _read_leaf(source, wanted, types, push)
    if stop not in closers:
        source.pos += len(after)


def _read_leaf(source: TextSource, wanted: Stops, types: frozenset[str], push: Emit) -> Incremental[str]:
    """Read text up to a stop. A value that can only be a string streams, any other is converted when it is complete."""
    if types == STRING:
        push('"')
        stop = yield from source.read_until(wanted, lambda text: push(json_string(text)[1:-1]))
        push('"')
    else:
        buffered: list[str] = []
        stop = yield from _buffer_until(source, wanted, buffered, skip_quoted="string" not in types)
        if stop is not None:
            push(typed_json("".join(buffered), types))
    if stop is None:
        raise Truncated("the text ended in a value")
    return stop


def _buffer_until(source: TextSource, wanted: Stops, buffered: list[str], *, skip_quoted: bool) -> Incremental[str | None]:
    """Buffer the text up to a stop. In a JSON array or object, stops between quotes are skipped."""
    is_structure = skip_quoted and (yield from source.skip_space()) and source.text[source.pos] in "[{"
    if not is_structure:
        return (yield from source.read_until(wanted, buffered.append))
    outside = stops((*wanted.texts, '"'))
    while (stop := (yield from source.read_until(outside, buffered.append))) == '"':
        if buffered and buffered[-1].endswith("\\"):
            return (yield from source.read_until(wanted, buffered.append))  # escaped twice: the quotes quote nothing
        source.pos += 1
        buffered.append('"')
        while (stop := (yield from source.read_until(STRING_END, buffered.append))) == "\\":
            buffered.append((yield from source.peek_chars(2)))
            source.pos += 2
        if stop is None:
            return None
        source.pos += 1
        buffered.append('"')
    return stop


def read_nested(source: TextSource, spelling: Nested, schema: ValueSchema, push: Emit, depth: int = 0) -> Incremental[None]:
    """Read a value of nested elements, up to the closing tag around it, which is left unread."""
    if depth > MAX_DEPTH:
        raise Mismatch("nested too deep")
    root, own = schema.root, schema.schema
    types = types_of(root, own)
    tag, end = f"{spelling.prefix}<", f"{spelling.prefix}</"
    if types == STRING:
        yield from _read_leaf(source, stops((end,)), types, push)
        return
    buffered: list[str] = []
    if (yield from source.read_until(stops((tag,)), buffered.append)) is None:
        raise Truncated("the text ended in a value")
    is_list: bool | None = None
    while (yield from source.at((tag, end))) != end:
        if (yield from source.at((tag,))) is None:
            raise Mismatch("an element is missing")
        source.pos += len(tag)
        key = yield from read_tag_name(source)
        if is_list is None:
            is_list = "array" in types if len(types & {"array", "object"}) == 1 else key == spelling.item
            push("[" if is_list else "{")
        else:
            push(", ")
        if not is_list:
            push(f"{json_string(key)}: ")
        inner = items_of(root, own) if is_list else property_of(root, own, key)
        yield from read_nested(source, spelling, ValueSchema(root, inner), push, depth + 1)
        source.pos += len(end)
        if (yield from read_tag_name(source)) != key:
            raise Mismatch(f"element {key!r} is not closed")
        yield from source.skip_space()
    text = "".join(buffered)
    if is_list is not None:
        push("]" if is_list else "}")
    elif not text.strip() and types & {"array", "object"} and "string" not in types:
        push("[]" if "array" in types else "{}")
    else:
        push(typed_json(text, types))


def read_tag_name(source: TextSource) -> Incremental[str]:
    """Read the name and the end of a tag whose start was read."""
    word = yield from source.read_word(TAG_END, TAG_NAME)
    source.pos += 1
    return word
