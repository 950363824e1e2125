"""What a rendering may spend: steps for what it does, and bytes for what it makes. There is no clock here, and none is needed.

A step takes a tenth to half a microsecond: a node of the template at work, an item of a list, 64 bytes of text. A rendering
gets a fixed number of both, and more for a longer conversation, since templates go over it again and again. What it has spent is
known to its own thread alone: others render too.
"""

from contextvars import ContextVar
from typing import Any, Final, cast

import jinja2
from jinja2.runtime import LoopContext
from jinja2.utils import Namespace

STEPS, STEPS_PER_BYTE, MOST_STEPS = 400_000, 50, 60_000_000  # the templates in use need some thousand
BYTES, BYTES_PER_BYTE, MOST_BYTES = 32 << 20, 1000, 1 << 30
MOST_BITS: Final = 64  # of a number that a template makes: larger ones have hashes that can be foreseen
_SHORT: Final = 64  # characters: what is no longer is paid for by its node
_PLAIN: Final = cast("dict[str, Any]", {})
_NO_VALUES: Final[frozenset[Any]] = frozenset((Namespace, LoopContext))  # what is in them changes when it is gone over, or later
WITH_ITEMS: Final[frozenset[Any]] = _NO_VALUES | {
    *(dict, list, tuple, range, type(_PLAIN.keys()), type(_PLAIN.values()), type(_PLAIN.items()))
}


class TooManySteps(jinja2.TemplateError):
    """The template would do or make more than it may."""


_left: ContextVar[list[int]] = ContextVar("_left")  # steps, bytes, and the steps there were


def begin(size: int) -> None:
    """A new rendering begins, of a conversation of so many bytes."""
    steps = min(STEPS + STEPS_PER_BYTE * size, MOST_STEPS)
    _left.set([steps, min(BYTES + BYTES_PER_BYTE * size, MOST_BYTES), steps])


def spent() -> int:
    """The steps that the latest rendering has taken."""
    return _left.get()[2] - _left.get()[0]


def left() -> list[int]:
    """The steps and the bytes that are left to this rendering."""
    return _left.get()


def spend(steps: int, size: int = 0) -> None:
    """Pay for work that is about to be done, and for the bytes it makes."""
    budget = _left.get()
    budget[0] -= steps
    budget[1] -= size
    if budget[0] < 0:
        raise TooManySteps("the template takes more steps than it has for a conversation of this length")
    if budget[1] < 0:
        raise TooManySteps("the template makes more text than it may for a conversation of this length")


def reserve(size: int) -> None:
    """See that so many bytes are left, for what may turn out to be so large, and is paid for when it is made."""
    spend(0, size)
    _left.get()[1] += size


def pay_for(value: Any) -> Any:
    """Pay for a value, without what is in it, and return it."""
    kind = cast(Any, type(value))
    if isinstance(value, str):
        if len(value) > _SHORT:
            size = value.__sizeof__()
            spend(size >> 6, size)
    elif kind is int:
        if value.bit_length() > MOST_BITS:
            raise TooManySteps(f"the template makes a number of more than {MOST_BITS} bits")
    elif kind in WITH_ITEMS:
        spend(len(value), 64 * len(value))
    return value


def gone_over(value: Any) -> Any:
    """Pay for a value with all that is in it, before it is compared or searched, and return it."""
    pay_for_all(value)
    return value


def pay_for_all(value: Any, indent: int = 0) -> int:
    """Pay for a value with all that is in it: what is in it twice is there twice. Returns how many characters are in it.

    `indent`: each item is written on a line of its own, so much further in than what it is in.
    """
    if isinstance(value, str):
        spend(len(value) >> 6)
        return len(value)
    characters, depth, level = 8, 0, [value] if type(value) in WITH_ITEMS else []
    while level:
        depth += 1
        if not _NO_VALUES.isdisjoint(map(type, level)):
            raise TypeError("a namespace or a loop is no value")
        items, count = sum(map(len, level)), 0
        spend(items * (2 + (depth * indent >> 6)))
        below: list[Any] = []
        for tree in level:
            form = cast(Any, type(tree))
            if form is dict:
                count += sum(len(key) for key in tree if type(key) is str)
            for item in tree.values() if form is dict else tree:
                kind = cast(Any, type(item))
                if isinstance(item, str):
                    count += len(item)
                elif kind in WITH_ITEMS:
                    below.append(item)
        spend(count >> 6)
        characters += count + items * (8 + depth * indent)
        level = below
    return characters


def pay_for_text(value: Any, indent: int = 0) -> int:
    """Pay for a value that is about to be written as text, and see that the text can be paid for, escapes and all.

    Returns how many characters are in it.
    """
    characters = pay_for_all(value, indent)
    spend(0 if isinstance(value, str) else characters >> 3)
    reserve(48 * characters)
    return characters


def size_of(value: Any) -> int:
    """About the bytes of a value of plain dicts and lists, with all that is in it."""
    size, waiting = 0, [value]
    for item in waiting:
        if type(item) is str:
            size += len(item)
        elif type(item) is dict:
            waiting += cast("dict[str, Any]", item).values()
        elif type(item) is list:
            waiting += cast("list[Any]", item)
    return size + 64 * len(waiting)
