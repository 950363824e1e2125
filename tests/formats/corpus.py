"""Real model outputs with what they should be read as: the cases, and how a case is judged."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callsmith.core.values import TOOL_NAME, Tool
from callsmith.formats import format_named
from callsmith.formats.layout import Format, nodes_of
from callsmith.formats.parse import parse
from callsmith.formats.write import literal_text

CORPUS = Path(os.environ.get("CALLSMITH_CORPUS", Path(__file__).parents[3] / "shared" / "data"))
WILD = Path(__file__).parent / "wild"


@dataclass(frozen=True, slots=True)
class Case:
    """One output, the tools the model was shown, and what the project it comes from reads in it."""

    row: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.row['format']}: {self.row['test']}: {self.row['output'][:60]!r}"

    @property
    def format(self) -> Format:
        return format_named(self.row["format"])

    @property
    def tools(self) -> list[Tool]:
        functions = [entry.get("function", entry) for entry in self.row.get("tools") or []]
        return [Tool(one["name"], "", one.get("parameters") or {}) for one in functions if TOOL_NAME.fullmatch(one["name"])]

    @property
    def opened(self) -> str:
        """The prompt's tail, as far as it was recorded."""
        recorded = self.row.get("generation_prompt") or self.row.get("prompt_tail") or ""
        thinks = self.format.thinks
        inside = thinks is not None and self.row.get("initial_state") == "REASONING"
        return literal_text(nodes_of(thinks.open)) if thinks and inside and not recorded else recorded

    @property
    def counts(self) -> bool:
        """Whether the case says how a text is to be read: not those judged unsure, nor those in which calls are thrown away."""
        dropped = "tool_choice_none[" in self.row["test"] or "TestToolCallFiltering" in self.row["test"]
        return self.row.get("trust") != "low" and not dropped

    def differs(self) -> str:
        """How what we read differs from what is expected; empty if it does not."""
        got = parse(self.format, self.row["output"], self.tools, self.opened)
        calls = [(call.name, dict(call.arguments)) for call in got.calls]
        wanted = [(call["name"], call["arguments"]) for call in self.row.get("expected_calls") or []]
        if calls != wanted:
            return f"calls {calls} instead of {wanted}"
        content, reasoning = self.row.get("expected_content"), self.row.get("expected_reasoning")
        if self.row.get("scope") == "tools_only" or content is reasoning is None:
            return ""
        if self.row["source"] == "sglang" and reasoning is None:
            told, wanted_text = (
                got.reasoning.strip() + got.content.strip(),
                (content or "").strip(),
            )  # it does not tell them apart
            return "" if told == wanted_text else f"text {told!r} instead of {wanted_text!r}"
        if (got.content.strip(), got.reasoning.strip()) != ((content or "").strip(), (reasoning or "").strip()):
            return f"text {got.content!r}, thought {got.reasoning!r} instead of {content!r}, {reasoning!r}"
        return ""


def cases(folder: Path) -> Iterator[Case]:
    """Every case of a folder of `.jsonl` files."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield Case(json.loads(line))
