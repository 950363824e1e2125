"""Texts that are too long, cut so that whoever reads them sees it."""


def cut_text(text: str, most: int) -> str:
    """The text or, if it is longer than so many characters, its beginning and how much is missing."""
    missing = len(text) - most
    return text if missing <= 0 else f"{text[:most]}\n[Cut here: {missing:,} of {len(text):,} characters are missing.]"
