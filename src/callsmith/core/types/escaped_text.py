r"""What others wrote, for where it is shown: a terminal, a line of a log, Markdown, HTML. Nothing of it is obeyed
there, and what is too long is cut so that whoever reads it sees it.

Characters that nobody would see, or that a terminal would obey, become `\u200b`, as JSON writes them: a JSON document stays the
same document.
"""

import json
import re
import unicodedata
from html import escape
from typing import Any

_HIDING = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})  # controls, marks that are not seen, private use, line separators
_SPACE = frozenset("\n\r\t")
# Emoji, and letters of some languages, are joined by a character that is hidden elsewhere.
_UNUSUAL = re.compile("[^ -~\n\t\u200d]|(?<=[\0-\x7f])\u200d|\u200d(?=[\0-\x7f])")
# What no Markdown makes anything of, wherever it is behind a mark of ours; addresses and mentions others make links of.
_PLAIN = re.compile(
    r"""(?!.*(?:://|www\.))(?:[^\0-\x7f]|[a-z0-9]|(?<=[a-z0-9])_(?=[a-z0-9])|[ .,;:%()+'"=?/-]|[<>](?=\ ))*""", re.IGNORECASE
)
_NOTE = re.compile(r"\n\[Cut here: [0-9,]{1,20} of ([0-9][0-9,]{0,19}) characters are missing\.\]\Z")
_LONGEST_NOTE = 100


def is_hidden(char: str) -> bool:
    """Whether nobody would see a character, or a terminal would obey it; ends of lines and tabs aside. U+FFFE and U+FFFF are
    none, and XML takes neither."""
    hidden = unicodedata.category(char) in _HIDING or char in "\ufffe\uffff"
    return hidden and not (char.isprintable() or char in _SPACE)


def show_hidden(text: str) -> str:
    """The text for a terminal, with the ends of its lines."""
    return _UNUSUAL.sub(_shown, text.replace("\r\n", "\n"))


def one_line(text: str, most: int | None = None) -> str:
    """The text for a single line of a terminal or a log; cut, if it has more than so many characters."""
    if most is not None and len(text) > most:
        text = f"{text[: most - 1]}…"
    return show_hidden(text).replace("\n", "\\n").replace("\t", "\\t")


def in_markdown(text: str, most: int | None = None) -> str:
    """The text inside a line of Markdown, also in a table: as it is if it has no meaning in Markdown, else as code."""
    line = one_line(text, most)
    if _PLAIN.fullmatch(line):
        return line
    code = line.replace("`", r"\u0060").replace(r"\|", r"\u005c|").replace("|", r"\|")  # as tables want it
    return f"`{code}`"


def in_html(text: str) -> str:
    """The text inside an element or an attribute."""
    return escape(show_hidden(text))


def in_json(value: Any, indent: int | None = None) -> str:
    """The JSON document of a value, which every file takes: half a surrogate pair is escaped too."""
    return show_hidden(json.dumps(value, ensure_ascii=False, indent=indent))


def _shown(match: re.Match[str]) -> str:
    char = match[0]
    if char != "\r" and not is_hidden(char):
        return char
    return "\\u" + char.encode("utf-16-be", "surrogatepass").hex("-", 2).replace("-", "\\u")


def cut_text(text: str, most: int) -> str:
    """The text or, if it is longer than so many characters, its beginning and how much is missing: of one that was cut before,
    of what it was at first."""
    if len(text) <= most:
        return text
    cut_before = _NOTE.search(text, max(0, len(text) - _LONGEST_NOTE))
    whole = max(cut_before.start(), int(cut_before[1].replace(",", ""))) if cut_before else len(text)
    return f"{text[:most]}\n[Cut here: {whole - most:,} of {whole:,} characters are missing.]"
