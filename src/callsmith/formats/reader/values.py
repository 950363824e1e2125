"""Reading values: from a family's spelling to JSON text, piece by piece.

`push` takes the JSON text as it becomes known. A string streams; a value whose type is not yet sure is held to its end, so
nothing pushed is ever taken back. `repair` is told of each leniency by name.
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
AFTER_STRING = ",:}])<["  # what may follow a string in a notation, or end it where its brackets are missing
CALL_END = ")"  # the closer around Python's arguments, which no value opens
KEY_END = stops((":", "}", ",", "\n"))
# By opening bracket: the closing one, and behind it the JSON text that is written for it.
BRACKETS = {"{": "}}", "[": "]]", "(": ")]"}
BRACE = "{"  # around a string of which it is not yet known whether it is a key
SET = "}]"
BRACES = "}{}"  # Python's, before it is known whether a dict or a set is between them
CDATA = "<![CDATA["
CDATA_END = stops(("]]>",))


class Sink(NamedTuple):
    """Where JSON text goes, and who is told of repairs."""

    push: Emit
    repair: Emit


def read_notation(
    source: TextSource, spelling: Notation, sink: Sink, schema: Schema | None = None, ends: tuple[str, ...] = ()
) -> Incremental[None]:
    """One value of a notation, brackets and all. Iterative, so depth is bounded by a number and not by the stack.

    With the schema of an object, a bare word where it demands a string is that string. At `ends`, open brackets are closed.
    """
    push = sink.push
    words = False  # a bare word here is a string
    closers: list[str] = []
    keyed = False  # a key and its colon have been read
    count = [0]
    while True:
        char = yield from source.peek()
        if closers and not keyed and char == closers[-1][0]:
            source.pos += 1
            push(closers.pop()[1:])
            count.pop()
        else:
            if closers and not keyed:
                if count[-1] and not (yield from _next_item(source, sink, closers, ends)):
                    if closers:
                        continue
                    return
                count[-1] += 1
                if closers[-1] == BRACES:
                    closers[-1] = yield from _first_of_braces(source, spelling, sink)
                    keyed = closers[-1] != SET
                    continue
                if closers[-1] == BRACKETS["{"]:
                    key = yield from _key(source, spelling, sink)
                    words = bool(schema) and len(closers) == 1 and types_of(schema, property_of(schema, schema, key)) == STRING
                    keyed = True
                    continue
            keyed = False
            around = (CALL_END,) * spelling.python + tuple(closer[0] for closer in closers)
            opened = yield from _open(source, spelling, sink, around=around, words=words)
            if opened:
                if len(closers) >= MAX_DEPTH:
                    raise Mismatch("nested too deep")
                closers.append(opened)
                count.append(0)
                continue
        if not closers:
            return


def _next_item(source: TextSource, sink: Sink, closers: list[str], ends: tuple[str, ...]) -> Incremental[bool]:
    """The comma before another item; False if there is none: behind the last comma, or where all brackets are left open."""
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


def _open(source: TextSource, spelling: Notation, sink: Sink, *, around: tuple[str, ...], words: bool) -> Incremental[str]:
    """A value begins: the closer if it is a bracket, "" if it was a whole string or word. `around`: what will close around it."""
    char = yield from source.peek()
    if char == "{" or char == "[" or (char == "(" and spelling.python):
        source.pos += 1
        if char == "{" and spelling.python:
            return BRACES
        sink.push("{" if char == "{" else "[")
        return BRACKETS[char]
    quote = yield from _quote(source, spelling, sink)
    if quote:
        yield from read_string(source, quote, spelling, sink, around)
        return ""
    word: list[str] = []
    if (yield from source.read_until(BARE_END if spelling.bare_keys else WORD_END, word.append)) is None:
        raise Truncated("the text ended in a value")
    text = "".join(word).strip()
    if not text:
        raise Mismatch("a value is missing")
    if spelling == JSON and not (text in ("true", "false", "null") or text[0] in "-0123456789"):
        sink.repair("python-literals")
    sink.push(json_string(text) if words else bare_word_json(text))
    return ""


def _first_of_braces(source: TextSource, spelling: Notation, sink: Sink) -> Incremental[str]:
    """The first thing between Python's braces, and which they are: those of a dict, its key and colon read, or of a set."""
    held: list[str] = []
    quote = yield from _quote(source, spelling, sink)
    if quote:
        yield from read_string(source, quote, spelling, Sink(held.append, sink.repair), (BRACE,))
        yield from source.peek()
    elif (yield from source.read_until(KEY_END, held.append)) is None:
        raise Truncated("the text ended in a value")
    text = "".join(held).strip()
    if not (yield from source.at((":",))):
        sink.push("[" + (text if quote else bare_word_json(text)))
        return SET
    if not quote:
        sink.repair("bare-keys")
    source.pos += 1
    sink.push("{" + (text if quote else json_string(text)) + ": ")
    return BRACKETS["{"]


def _quote(source: TextSource, spelling: Notation, sink: Sink) -> Incremental[str | None]:
    quote = yield from source.at(spelling.quotes if "'" in spelling.quotes else (*spelling.quotes, "'", '"'))
    if quote:
        source.pos += len(quote)
        if quote not in spelling.quotes:
            sink.repair("other-quotes")
    return quote


def _key(source: TextSource, spelling: Notation, sink: Sink) -> Incremental[str]:
    """A key and its colon; the key, if it is a bare word."""
    yield from source.peek()
    key = ""
    quote = yield from _quote(source, spelling, sink)
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
    source: TextSource, quote: str, spelling: Notation, sink: Sink, around: tuple[str, ...] = ()
) -> Incremental[None]:
    """The rest of a string whose opening quote was read, as a JSON string. `around`: what will close around it."""
    push = sink.push
    escapes = quote[0] in "'\"" and (spelling.escapes or quote not in spelling.quotes)
    wanted = stops((quote, "\\") if escapes else (quote,))

    def emit(text: str) -> None:
        # Between double quotes JSON text is its own escape, but for control characters that a model wrote plainly.
        push(text if escapes and quote == '"' and text.isprintable() else json_string(text)[1:-1])

    push('"')
    while True:
        stop = yield from source.read_until(wanted, emit)
        if stop is None:
            raise Truncated("the text ended in a string")
        if stop == quote:
            if around and escapes and not (yield from _ends_string(source, len(quote), around)):
                sink.repair("unescaped-quotes")
                source.pos += len(quote)
                emit("\\" * (quote == '"') + quote)
                continue
            source.pos += len(quote)
            push('"')
            return
        push((yield from _escape(source, python=spelling.python)))


def _ends_string(source: TextSource, offset: int, around: tuple[str, ...]) -> Incremental[bool]:
    """Whether a quote ends its string: behind it stands what may follow there, and is not just more of an unescaped text."""
    depth = len(around)
    while True:
        char, offset = yield from source.peek_after(offset)
        if not char or char in "<[":
            return True
        if char not in AFTER_STRING or offset > MAX_WORD:
            return char in AFTER_STRING
        if around[depth - 1] == BRACE:
            return True
        if char == ",":
            return (yield from _item_follows(source, offset + 1, around[:depth]))
        if char != around[depth - 1]:
            return False
        offset += 1
        depth -= 1
        if not depth:
            following = (yield from source.peek_after(offset))[0] if char == CALL_END else ""
            return not following or following not in ")'\""


def _item_follows(source: TextSource, offset: int, around: tuple[str, ...]) -> Incremental[bool]:
    """Whether behind a comma comes another item: in an object a key, in a call a name; in a list it may be anything."""
    call = around == (CALL_END,)
    char, offset = yield from source.peek_after(offset)
    if not char or char in ("<", around[-1]) or not (call or around[-1] == "}") or (not call and char in "\"'"):
        return True
    _, following = yield from source.peek_word(offset)
    return following in ("", "=" if call else ":")


def _escape(source: TextSource, *, python: bool) -> Incremental[str]:
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
    return json_string(text)[1:-1]  # no escape at all: the backslash was meant


class ValueSchema(NamedTuple):
    """What is known of a raw value before its first character: the whole schema, its own, and its flag if it carries one."""

    root: Schema
    schema: Schema
    flag: str | None = None

    def types(self, spelling: Raw) -> frozenset[str]:
        """The types it may have. A flag narrows them, but a string the schema forbids is still converted."""
        types = types_of(self.root, self.schema)
        meant = dict(spelling.flags).get(self.flag or "")
        if meant is None:
            return types
        if meant == "json":
            return types - STRING or types
        return types & {meant} or types


def read_raw(source: TextSource, spelling: Raw, closers: tuple[str, ...], typing: ValueSchema, push: Emit) -> Incremental[None]:
    """A value as plain text up to one of the closers, which is left unread."""
    types = typing.types(spelling)
    wanted = stops(tuple(f"\n{closer}" for closer in closers) + closers) if spelling.trim else stops(closers)
    if spelling.trim and (yield from source.at(("\n",))) and not (yield from source.at(wanted.texts)):
        source.pos += 1
    if spelling.cdata and (yield from source.at((CDATA,))):
        source.pos += len(CDATA)
        end = yield from _leaf(source, CDATA_END, types, push)
        source.pos += len(end)
        yield from source.skip_space()
        return
    stop = yield from _leaf(source, wanted, types, push)
    if stop not in closers:
        source.pos += 1


def _leaf(source: TextSource, wanted: Stops, types: frozenset[str], push: Emit) -> Incremental[str]:
    """Text up to a stop: a sure string streams, all else is typed when it is whole."""
    if types == STRING:
        push('"')
        stop = yield from source.read_until(wanted, lambda text: push(json_string(text)[1:-1]))
        push('"')
    else:
        held: list[str] = []
        stop = yield from _buffer_until(source, wanted, held, quotes="string" not in types)
        if stop is not None:
            push(typed_json("".join(held), types))
    if stop is None:
        raise Truncated("the text ended in a value")
    return stop


def _buffer_until(source: TextSource, wanted: Stops, held: list[str], *, quotes: bool) -> Incremental[str | None]:
    """Text up to a stop. In a value that is JSON and no string, a stop between quotes is not one."""
    structure = quotes and (yield from source.skip_space()) and source.text[source.pos] in "[{"
    if not structure:
        return (yield from source.read_until(wanted, held.append))
    outside = stops((*wanted.texts, '"'))
    while (stop := (yield from source.read_until(outside, held.append))) == '"':
        if held and held[-1].endswith("\\"):
            return (yield from source.read_until(wanted, held.append))  # escaped once too often: nothing is between quotes
        source.pos += 1
        held.append('"')
        while (stop := (yield from source.read_until(STRING_END, held.append))) == "\\":
            held.append((yield from source.peek_chars(2)))
            source.pos += 2
        if stop is None:
            return None
        source.pos += 1
        held.append('"')
    return stop


def read_nested(source: TextSource, spelling: Nested, typing: ValueSchema, push: Emit, depth: int = 0) -> Incremental[None]:
    """A value of nested elements, up to the closing tag around it, which is left unread."""
    if depth > MAX_DEPTH:
        raise Mismatch("nested too deep")
    root, schema = typing.root, typing.schema
    types = types_of(root, schema)
    tag, end = f"{spelling.prefix}<", f"{spelling.prefix}</"
    if types == STRING:
        yield from _leaf(source, stops((end,)), types, push)
        return
    held: list[str] = []
    if (yield from source.read_until(stops((tag,)), held.append)) is None:
        raise Truncated("the text ended in a value")
    listed: bool | None = None
    while (yield from source.at((tag, end))) != end:
        if (yield from source.at((tag,))) is None:
            raise Mismatch("an element is missing")
        source.pos += len(tag)
        key = yield from element_name(source)
        if listed is None:
            listed = "array" in types if len(types & {"array", "object"}) == 1 else key == spelling.item
            push("[" if listed else "{")
        else:
            push(", ")
        if not listed:
            push(f"{json_string(key)}: ")
        inner = items_of(root, schema) if listed else property_of(root, schema, key)
        yield from read_nested(source, spelling, ValueSchema(root, inner), push, depth + 1)
        source.pos += len(end)
        if (yield from element_name(source)) != key:
            raise Mismatch(f"element {key!r} is not closed")
        yield from source.skip_space()
    text = "".join(held)
    if listed is not None:
        push("]" if listed else "}")
    elif not text.strip() and types & {"array", "object"} and "string" not in types:
        push("[]" if "array" in types else "{}")
    else:
        push(typed_json(text, types))


def element_name(source: TextSource) -> Incremental[str]:
    """The rest of a tag whose beginning was read."""
    word = yield from source.read_word(TAG_END, TAG_NAME)
    source.pos += 1
    return word
