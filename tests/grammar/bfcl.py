"""The tools and gold calls of the Berkeley function-calling leaderboard, where the corpus is there."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from callsmith.core.values import Tool
from tests.formats.reader.corpus import CORPUS

GOLD = CORPUS / "bfcl_gold.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Entry:
    """One case: the tools a model is offered, and the calls it should make."""

    name: str
    tools: tuple[Tool, ...]
    gold: tuple[tuple[str, dict[str, Any]], ...]
    flags: frozenset[str]

    @property
    def contradicts_itself(self) -> bool:
        """Whether the gold is not valid by the tools' own schemas."""
        return "gold_violates_schema" in self.flags


@cache
def entries() -> tuple[Entry, ...]:
    """Every case in which calls are expected."""
    if not GOLD.exists():
        pytest.skip(f"the corpus is not there: set CALLSMITH_CORPUS ({GOLD} is missing)")
    with gzip.open(GOLD, "rt", encoding="utf-8") as lines:
        return tuple(_entry(row) for line in lines if (row := json.loads(line))["expect"] == "calls")


def schemas() -> Iterator[dict[str, Any]]:
    """Every distinct parameter schema."""
    seen: set[str] = set()
    for entry in entries():
        for tool in entry.tools:
            text = json.dumps(tool.parameters, sort_keys=True)
            if text not in seen:
                seen.add(text)
                yield dict(tool.parameters)


def _entry(row: dict[str, Any]) -> Entry:
    functions = [tool["function"] for tool in row["tools"]]
    tools = tuple(Tool(function["name"], "", function.get("parameters") or {}) for function in functions)
    gold = tuple((call["name"], call["arguments"]) for call in row["gold"])
    return Entry(row["id"], tools, gold, frozenset(row.get("flags") or ()))
