"""Answers as a client sees them, and the faults in how they were sent."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from callsmith.core.values import Json
from callsmith.evals.check.exchange import Exchange


@dataclass(slots=True)
class AnsweredCall:
    """A call in an answer: its arguments are the text that was sent."""

    name: str = ""
    text: str = ""
    id: str = ""

    @property
    def arguments(self) -> dict[str, Json] | None:
        """The arguments, or None where they are no JSON object."""
        try:
            value = json.loads(self.text)
        except (ValueError, RecursionError):
            return None
        return cast(dict[str, Json], value) if isinstance(value, dict) else None


@dataclass(slots=True)
class Answer:
    """An answer. `faults` are by what is wrong with its shape: "frames", "ids", "indices", "finish", "order", "arguments"."""

    exchange: Exchange
    text: str = ""
    thoughts: str = ""
    calls: list[AnsweredCall] = field(default_factory=list[AnsweredCall])
    finish: str = ""  # "stop", "length", "calls", or as the server spells one that is not known
    usage: Mapping[str, Json] | None = None
    faults: dict[str, str] = field(default_factory=dict[str, str])

    def fault(self, kind: str, what: str) -> None:
        """Take down a fault; the first of its kind counts."""
        self.faults.setdefault(kind, what)

    @property
    def said(self) -> tuple[str, list[tuple[str, Any]], str]:
        """What two answers to one question have in common, if they are alike: not the ids."""
        calls = [(call.name, call.text if call.arguments is None else call.arguments) for call in self.calls]
        return self.text.strip(), calls, self.finish
