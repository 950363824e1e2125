"""Engines continue text under a grammar. They know tokens and nothing of tools.

An engine is named `scheme:rest` (`llama:/models/qwen.gguf`); the scheme is the module's name here, or an entry point in the
group `callsmith.engines`, and the module's `open(rest, **options)` makes it.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from typing import Any, Literal, Protocol

from callsmith.core.errors import UnknownName
from callsmith.core.values import Sampling, Usage
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.nodes import Grammar


@dataclass(frozen=True, slots=True)
class Piece:
    """The next piece of text. `special`: it is the text of one special token, and not the same letters in ordinary tokens.

    `usage` is what the answer has cost when this was said, where the engine tells: for whoever wants no more of it.
    """

    text: str
    special: bool = False
    usage: Usage | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Finished:
    """The text has ended: by itself, a stop string or the end of the grammar ("stop"), or at a length limit ("length").

    `matched` is the stop string, where it was one.
    """

    reason: Literal["stop", "length"]
    usage: Usage = Usage()
    matched: str = ""


class Engine(Protocol):
    """Continues a prompt. Closing the generator early stops the work within one decode step."""

    @property
    def template(self) -> str | None:
        """The chat template the weights carry, if any."""
        ...

    @property
    def specials(self) -> Mapping[str, int]:
        """Special and added tokens: text to id."""
        ...

    def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        """Pieces of text, then exactly one Finished."""
        ...

    def count(self, text: str) -> int:
        """How many tokens the text has."""
        ...

    def close(self) -> None:
        """Free what the engine holds. Generating afterwards is an error."""
        ...


def settled(asked: Sampling, defaults: Sampling) -> Sampling:
    """What was asked for, and the defaults for the rest."""
    missing = {one.name: getattr(defaults, one.name) for one in fields(asked) if getattr(asked, one.name) in (None, ())}
    return replace(asked, **missing)


def plugged() -> dict[str, EntryPoint]:
    """The engines of other packages, by scheme."""
    return {entry.name: entry for entry in entry_points(group="callsmith.engines")}


def open_engine(spec: str, **options: Any) -> Engine:
    """`open_engine("llama:/models/qwen.gguf")`: the engine of that scheme, opened on the rest."""
    scheme, _, rest = spec.partition(":")
    built_in = {module.name for module in iter_modules(__path__)}
    others = plugged()
    if scheme in built_in:
        module = import_module(f"{__name__}.{scheme}")
        if hasattr(module, "open"):
            return module.open(rest, **options)
    if scheme in others:
        return others[scheme].load()(rest, **options)
    raise UnknownName("engine", scheme, {"llama", "scripted", *others})
