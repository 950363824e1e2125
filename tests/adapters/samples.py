"""Tools, texts and judgements that the tests of both plug-ins share."""

import json
from functools import cache
from typing import Any

from callsmith.core.values import TOOL_NAME, Call
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.write import write
from tests.formats.reader.corpus import Case

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
TIME = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]},
    },
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def in_deltas(tokenizer: Any, text: str, size: int) -> list[tuple[str, list[int]]]:
    """The text as a server streams it: so many tokens at once, and a character as soon as it is complete."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces, before = [], ""
    for start in range(0, len(ids), size or len(ids)):
        end = start + (size or len(ids))
        so_far = tokenizer.decode(ids[:end]).rstrip("\ufffd") if end < len(ids) else text
        pieces.append((so_far[len(before) :], ids[start:end]))
        before = so_far
    return pieces


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def declared(case: Case) -> list[Any]:
    """The tools of a case as a request declares them, and those that are called besides, with any arguments."""
    functions = {item["name"]: item for item in (entry.get("function", entry) for entry in case.row.get("tools") or [])}
    names = [call["name"] for call in case.row["expected_calls"] or []]
    called = {name: {"name": name} for name in names if TOOL_NAME.fullmatch(name)}
    return [{"type": "function", "function": item} for item in (called | functions).values()]


@cache
def compiler() -> Any:
    """xgrammar, for a vocabulary of single bytes: which texts a grammar accepts is the same for all vocabularies."""
    import xgrammar

    letters = [bytes([code]) for code in range(256)]
    info = xgrammar.TokenizerInfo([*letters, b"</s>"], xgrammar.VocabType.RAW, stop_token_ids=[len(letters)])
    return xgrammar.GrammarCompiler(info)


def accepts(text: str, *, grammar: str | None = None, tag: str | None = None) -> bool:
    """Whether xgrammar, with this grammar or structural tag, takes this text to its end."""
    import xgrammar

    compiled = compiler().compile_grammar(grammar) if grammar else compiler().compile_structural_tag(tag)
    matcher = xgrammar.GrammarMatcher(compiled)
    return matcher.accept_string(text) and matcher.accept_token(256)


def written(format: Format, name: str, arguments: dict[str, Any]) -> str:
    """A call as the format writes it."""
    return write(format, [Call(name, arguments, fit_id("call_1", format.ids))])
