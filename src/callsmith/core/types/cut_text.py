"""Texts that are too long, cut so that whoever reads them sees it."""

import re

_NOTE = re.compile(r"\n\[Cut here: [0-9,]{1,20} of ([0-9][0-9,]{0,19}) characters are missing\.\]\Z")
_LONGEST_NOTE = 100


def cut_text(text: str, most: int) -> str:
    """The text or, if it is longer than so many characters, its beginning and how much is missing: of one that was cut before,
    of what it was at first."""
    if len(text) <= most:
        return text
    cut_before = _NOTE.search(text, max(0, len(text) - _LONGEST_NOTE))
    whole = max(cut_before.start(), int(cut_before[1].replace(",", ""))) if cut_before else len(text)
    return f"{text[:most]}\n[Cut here: {whole - most:,} of {whole:,} characters are missing.]"
