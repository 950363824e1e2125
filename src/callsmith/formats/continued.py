"""An answer that the prompt has begun: the header of the turn told from the words the model is to continue."""

import re

from callsmith.formats.layout import Calls, Format, first, nodes_of

# Control tokens and the name of the role: `<|im_start|>assistant\n`, `<｜Assistant｜>`, `]~b]ai\n`, `assistant: `.
TOKENS = r"(?:\s|<[^<>\s]+>|\]~b\])*"
HEADER = re.compile(rf"{TOKENS}(?:(?i:assistant|model|chatbot|ai)\b:?)?{TOKENS}")


def split_header(format: Format, opened: str) -> tuple[str, str]:
    """The header of the turn, and what of the answer stands behind it in the prompt."""
    frames = [part for part in format.parts if not isinstance(part, Calls)]
    marked = [at for part in frames for marker in first(nodes_of(part.open)) if (at := opened.find(marker)) >= 0]
    header = HEADER.match(opened)
    end = min(marked) if marked else header.end() if header else 0
    return opened[:end], opened[end:]
