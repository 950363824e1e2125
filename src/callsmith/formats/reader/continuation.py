"""Answers that the prompt has begun: where the header ends and the answer begins, and reasoning without an opener."""

import re

from callsmith.formats.algebra import Calls, Format, Says, first_literals, nodes_of
from callsmith.formats.write import literal_text

# Control tokens and the name of the role: `<|im_start|>assistant\n`, `<｜Assistant｜>`, `]~b]ai\n`, `assistant: `.
TOKENS = r"(?:\s|<[^<>\s]+>|\]~b\])*"
HEADER = re.compile(rf"{TOKENS}(?:(?i:assistant|model|chatbot|ai)\b:?)?{TOKENS}")


def split_header(format: Format, opened: str) -> tuple[str, str]:
    """Split the end of a prompt into the header of the turn and the beginning of the answer."""
    frames = [part for part in format.parts if not isinstance(part, Calls)]
    marked = [at for part in frames for marker in first_literals(nodes_of(part.open)) if (at := opened.find(marker)) >= 0]
    header = HEADER.match(opened)
    end = min(marked) if marked else header.end() if header else 0
    return opened[:end], opened[end:]


def missing_thought_opener(format: Format, text: str) -> str:
    """What the text lacks of the opener of reasoning, if it closes reasoning that it does not open; else an empty string."""
    thinks = format.thinks
    if thinks is None:
        return ""
    closes = set(first_literals(nodes_of(thinks.close)))
    if any(closes & set(first_literals(nodes_of(part.close))) for part in format.parts if isinstance(part, Says)):
        return ""  # the closer may also close text
    ended = min((text.find(close) for close in closes if close in text), default=-1)
    begun = min((text.find(opener) for opener in first_literals(nodes_of(thinks.open)) if opener in text), default=len(text))
    if not 0 <= ended < begun:
        return ""
    opener = literal_text(nodes_of(thinks.open))
    return opener[: next((at for at in range(1, len(opener)) if text.startswith(opener[at:])), len(opener))]
