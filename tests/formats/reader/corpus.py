"""Real model outputs with what they should be read as: the cases, and how a case is judged."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from callsmith.core.events import CallArguments, CallStarted, ModelEvent
from callsmith.core.values import TOOL_NAME, Tool
from callsmith.formats import format_named
from callsmith.formats.algebra import Format, nodes_of
from callsmith.formats.reader.markers import compile_markers
from callsmith.formats.reader.parse import Parsed, collect, parse
from callsmith.formats.reader.reader import Reader
from callsmith.formats.write import literal_text

CORPUS = Path(os.environ.get("CALLSMITH_CORPUS", Path(__file__).parents[4] / "shared" / "data"))
WILD = Path(__file__).parent.parent / "wild"


@dataclass(frozen=True, slots=True)
class Case:
    """One output, the tools the model was shown, and what the project it comes from reads in it."""

    row: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.row['format']}: {self.row['test']}: {self.row['output'][:60]!r}"

    @property
    def key(self) -> str:
        """The case by a number made of its name: in lists of ours it stands for words that are others'."""
        return f"{self.row['format']} {sha256(self.name.encode()).hexdigest()[:10]}"

    @property
    def format(self) -> Format:
        return format_named(self.row["format"])

    @property
    def tools(self) -> list[Tool]:
        functions = [entry.get("function", entry) for entry in self.row.get("tools") or []]
        return [
            Tool(function["name"], "", function.get("parameters") or {})
            for function in functions
            if TOOL_NAME.fullmatch(function["name"])
        ]

    @property
    def opened(self) -> str:
        """The prompt's tail, as far as it was recorded: of some of its tokens the number alone, which is no text."""
        recorded = self.row.get("generation_prompt") or re.sub(r"\?\d+\?", "", self.row.get("prompt_tail") or "")
        thinks = self.format.thinks
        inside = thinks is not None and self.row.get("initial_state") == "REASONING"
        return literal_text(nodes_of(thinks.open)) if thinks and inside and not recorded else recorded

    @property
    def counts(self) -> bool:
        """Whether the case says how a text is to be read: not those judged unsure, nor those in which calls are thrown away."""
        return self.row.get("trust") != "low" and not self.throws_calls_away

    @property
    def throws_calls_away(self) -> bool:
        """Whether the peer read the calls and then dropped them, because it was told not to call."""
        return "tool_choice_none[" in self.row["test"] or "TestToolCallFiltering" in self.row["test"]

    def differs(self) -> str:
        """How what we read differs from what is expected; empty if it does not.

        SGLang's streamed cases do not record whether the peer was told that the text has ended: before or after, both count.
        """
        if self.row.get("is_partial"):
            return self._differs_so_far()
        if self.row["test"].endswith("none_with_tools"):  # the peer was told not to call
            return self._difference(parse(self.format.without_calls(), self.row["output"], self.tools, self.opened))
        if "TokenIdFiltering" in self.row["test"]:
            return self._difference(collect(self._read_by_token()))
        problem = self._difference(parse(self.format, self.row["output"], self.tools, self.opened))
        if problem and (self.row["source"], self.row["mode"]) == ("sglang", "stream"):
            before_the_end = Reader(self.format, self.tools, self.opened).feed(self.row["output"])
            return self._difference(collect(before_the_end)) and problem
        return problem

    def _difference(self, got: Parsed) -> str:
        calls = [(call.name, dict(call.arguments)) for call in got.calls]
        wanted = [(call["name"], call["arguments"]) for call in self.row.get("expected_calls") or []]
        if calls != wanted and not self.throws_calls_away:
            return f"calls {calls} instead of {wanted}"
        content, reasoning = self.row.get("expected_content"), self.row.get("expected_reasoning")
        if self.row.get("scope") == "tools_only" or content is reasoning is None:
            return ""
        if self.row["source"] == "sglang" and reasoning is None:
            text, wanted_text = (
                got.reasoning.strip() + got.content.strip(),
                (content or "").strip(),
            )  # it does not tell them apart
            return "" if text == wanted_text else f"text {text!r} instead of {wanted_text!r}"
        if (got.content.strip(), got.reasoning.strip()) != ((content or "").strip(), (reasoning or "").strip()):
            return f"text {got.content!r}, thought {got.reasoning!r} instead of {content!r}, {reasoning!r}"
        return ""

    def _read_by_token(self) -> list[ModelEvent]:
        """Read as a peer does that is told the ids of tokens: a marker counts only where it came as a piece of its own."""
        specials = frozenset(text for text in compile_markers(self.format).text_stops.texts if re.fullmatch(r"<[^<>=\s]+>", text))
        reader = Reader(self.format, self.tools, self.opened, specials=specials)
        events = [event for piece in self.row["streaming_chunks"] for event in reader.feed(piece, piece in specials)]
        return events + reader.close()

    def _differs_so_far(self) -> str:
        """The same of a text that is only the first of a stream: what counts are the events of the calls so far."""
        reader = Reader(self.format, self.tools, self.opened)
        events = reader.feed(self.row["output"])
        streamed = "".join(event.text for event in events if isinstance(event, CallArguments))
        got = [event.name for event in events if isinstance(event, CallStarted)], streamed.strip()
        wanted = self.row["expected_calls"]
        expected = [call["name"] for call in wanted], "".join(call["arguments_raw"] for call in wanted).strip()
        return "" if got == expected else f"so far {got} instead of {expected}"


def cases(folder: Path) -> Iterator[Case]:
    """Every case of a folder of `.jsonl` files."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield Case({"source": "", "test": row.get("fact"), **row})
