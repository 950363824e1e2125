"""One format that reads what any of them writes: for text of a model of which nothing is known.

Unlike `find_calls` it reads a stream. What stands in code (fences, backticks) is an example and no call, and what has no marker
of its own is a call only with the name of a known tool.
"""

from collections.abc import Iterable
from functools import cache

from callsmith.formats import formats
from callsmith.formats.algebra import Calls, Format, Part, Quotes, Says, Thinks, first_literals, nodes_of
from callsmith.formats.inference.find_calls import CHAIN, without_code

_LAST = ("json", "gemma4")  # formats whose calls may look like other text
_NEVER = ("plain-call", "fenced-json", "json-array")  # those that are as likely an example
_TOKEN = "<|"  # how special tokens begin
_ORDER = (Thinks, Calls, Quotes, Says)


@cache
def any_format() -> Format:
    """The format that reads all others, the common ones first."""
    known = formats()
    others = (name for name in known if name not in (*CHAIN, *_LAST, *_NEVER))
    return combined_format([known[name] for name in (*CHAIN, *others, *_LAST)])


def combined_format(several: Iterable[Format]) -> Format:
    """The format that reads what any of these writes, in this order, and in which code is text."""
    plain = [without_code(format) for format in several]
    known = dict.fromkeys(part for format in plain for part in format.parts if _is_certain(part))
    parts = sorted(known, key=lambda part: _ORDER.index(type(part)))
    drop = tuple(dict.fromkeys(text for format in plain for text in format.drop if text.startswith(_TOKEN)))
    return Format("any", tuple(parts), drop=drop)


def _is_certain(part: Part) -> bool:
    """Whether a part is not to be mistaken for other text: `<answer>` may well be one's own."""
    return not isinstance(part, Says) or all(text.startswith(_TOKEN) for text in first_literals(nodes_of(part.open)))
