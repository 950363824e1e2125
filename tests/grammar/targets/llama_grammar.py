"""llama.cpp's own grammar engine as a judge: whether a text, character by character, is what a GBNF grammar allows.

The C++ functions are taken out of the installed library by their mangled names; without a vocabulary they work on code points.
`Converter` is llama.cpp's own way from JSON Schema to GBNF. It ends the process on a schema it refuses, so it has one of its own.
"""

import ctypes as C
import json
import random
import subprocess
import sys
from functools import cache
from typing import Any

from callsmith.core.errors import CallsmithError

INIT = "_Z23llama_grammar_init_implPK11llama_vocabPKcS3_bPS3_mPKim"
FREE = "_Z23llama_grammar_free_implP13llama_grammar"
ACCEPT = "_Z20llama_grammar_acceptP13llama_grammarj"
STACKS = "_Z24llama_grammar_get_stacksP13llama_grammar"
PARSE_JSON = "_ZN11common_json5parseERKSs"
CONVERT = "_Z22json_schema_to_grammarRK11common_jsonb"


class _Vector(C.Structure):
    _fields_ = (("begin", C.c_void_p), ("end", C.c_void_p), ("room", C.c_void_p))


class _Room(C.Structure):
    """A C++ object returned into memory: larger than any that is."""

    _fields_ = (("content", C.c_uint8 * 512),)


@cache
def library() -> C.CDLL:
    from callsmith.engines.llama.libllama import load

    dll: Any = load().c
    return dll if isinstance(dll, C.CDLL) else C.CDLL(dll._name)


def missing(*names: str) -> str:
    """Why the engine cannot be asked; empty when it can."""
    try:
        dll = library()
    except (CallsmithError, OSError) as error:
        return f"no llama.cpp library: {error}"
    absent = [name for name in names or (INIT, FREE, ACCEPT, STACKS) if not hasattr(dll, name)]
    return f"this build of llama.cpp does not export {', '.join(absent)}" if absent else ""


class LlamaGrammar:
    """A grammar as llama.cpp understands it; `ValueError` where it does not."""

    def __init__(self, text: str) -> None:
        dll = library()
        self._init = C.CFUNCTYPE(
            C.c_void_p, C.c_void_p, C.c_char_p, C.c_char_p, C.c_bool, C.c_void_p, C.c_size_t, C.c_void_p, C.c_size_t
        )(C.cast(getattr(dll, INIT), C.c_void_p).value)
        self._free = C.CFUNCTYPE(None, C.c_void_p)(C.cast(getattr(dll, FREE), C.c_void_p).value)
        self._accept = C.CFUNCTYPE(None, C.c_void_p, C.c_uint32)(C.cast(getattr(dll, ACCEPT), C.c_void_p).value)
        self._stacks = C.CFUNCTYPE(C.POINTER(_Vector), C.c_void_p)(C.cast(getattr(dll, STACKS), C.c_void_p).value)
        self._text = text.encode()
        self._free(self._fresh())

    def _fresh(self) -> int:
        pointer = self._init(None, self._text, b"root", False, None, 0, None, 0)
        if not pointer:
            raise ValueError("llama.cpp refuses the grammar")
        return pointer

    def stuck(self, text: str) -> str | None:
        """Where the grammar does not go along any more; None: the text is whole."""
        grammar = self._fresh()
        try:
            for at, char in enumerate(text):
                self._accept(grammar, ord(char))
                stacks = self._stacks(grammar)[0]
                if stacks.begin == stacks.end:
                    return text[at : at + 80]
            stacks = self._stacks(grammar)[0]
            count = ((stacks.end or 0) - (stacks.begin or 0)) // C.sizeof(_Vector)
            each = C.cast(stacks.begin, C.POINTER(_Vector))
            return None if any(each[number].begin == each[number].end for number in range(count)) else "(the end)"
        finally:
            self._free(grammar)

    def accepts(self, text: str) -> bool:
        return self.stuck(text) is None

    def walk(self, chance: random.Random, longest: int = 400) -> str | None:
        """A text drawn out of the grammar; None where none has come to an end."""
        grammar = self._fresh()
        text = ""
        try:
            while len(text) < longest:
                ways, may_end = self._ways(grammar)
                if may_end and (not ways or chance.random() < 0.3):
                    return text
                low, high = chance.choice(chance.choice(ways))
                hurry = [char for char in '"}]' if len(text) > longest // 8 and any(_holds(way, char) for way in ways)]
                code = ord(chance.choice(hurry)) if hurry else chance.randint(low, high)
                if 0xD800 <= code <= 0xDFFF:
                    continue
                self._accept(grammar, code)
                text += chr(code)
            return None
        finally:
            self._free(grammar)

    def _ways(self, grammar: int) -> tuple[list[list[tuple[int, int]]], bool]:
        """The characters each way goes on with, and whether the text may end here."""
        stacks = self._stacks(grammar)[0]
        count = ((stacks.end or 0) - (stacks.begin or 0)) // C.sizeof(_Vector)
        each = C.cast(stacks.begin, C.POINTER(_Vector))
        tops = [C.c_uint64.from_address(each[at].end - 8).value for at in range(count) if each[at].begin != each[at].end]
        return [_allowed(top) for top in tops], len(tops) < count


# The kinds of elements a rule is made of.
_CHAR, _NOT, _UP_TO, _ALSO, _ANY = 3, 4, 5, 6, 7


def _allowed(address: int) -> list[tuple[int, int]]:
    """The characters an element allows."""
    elements = C.cast(address, C.POINTER(C.c_uint32 * 2))
    kind, ranges, at = elements[0][0], list[tuple[int, int]](), 0
    if kind == _ANY:
        return [(32, 0x2FF), (0x1F600, 0x1F610)]
    while at == 0 or elements[at][0] == _ALSO:
        low = high = elements[at][1]
        at += 1
        if elements[at][0] == _UP_TO:
            high = elements[at][1]
            at += 1
        ranges.append((low, high))
    assert kind in (_CHAR, _NOT)
    return ranges if kind == _CHAR else list(_others(tuple(ranges)))


@cache
def _others(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    inside = (*range(0x300), *range(0x1F600, 0x1F611))
    return tuple((code, code) for code in inside if not any(low <= code <= high for low, high in ranges))


def _holds(ranges: list[tuple[int, int]], char: str) -> bool:
    return any(low <= ord(char) <= high for low, high in ranges)


# --- llama.cpp's own converter ------------------------------------------------------------------------------------------------


class _String:
    """A `std::string` of the old kind, which this library is built with: a pointer to letters, their number before them."""

    def __init__(self, content: bytes) -> None:
        head = b"".join(number.to_bytes(8, "little") for number in (len(content), len(content), 1 << 20))
        self.memory = C.create_string_buffer(head + content)
        self.pointer = C.c_void_p(C.addressof(self.memory) + 24)


def _convert(schema: str) -> str:
    dll = library()
    parse = C.CFUNCTYPE(_Room, C.c_void_p)(C.cast(getattr(dll, PARSE_JSON), C.c_void_p).value)
    convert = C.CFUNCTYPE(_Room, C.c_void_p, C.c_bool)(C.cast(getattr(dll, CONVERT), C.c_void_p).value)
    schema_text = _String(schema.encode())
    tree = parse(C.addressof(schema_text.pointer))
    converted = convert(C.addressof(tree), True)
    letters = int.from_bytes(bytes(converted.content[:8]), "little")
    size = C.c_uint64.from_address(letters - 24).value
    return C.string_at(letters, size).decode()


class Converter:
    """llama.cpp's own JSON Schema → GBNF, in a process of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def convert(self, schema: object) -> tuple[str, float] | None:
        """The grammar and the seconds it took; None where it is refused."""
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-m", "tests.grammar.targets.llama_grammar"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(schema) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            return None
        body = json.loads(answer)
        return body["text"], body["seconds"]

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(10)


if __name__ == "__main__":
    import time

    _convert('{"type": "null"}')
    for line in sys.stdin:
        began = time.perf_counter()
        made = _convert(line.strip())
        print(json.dumps({"text": made, "seconds": time.perf_counter() - began}), flush=True)
