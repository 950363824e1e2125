"""What the clients of one server were promised, what was done, and what was wrong."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.attack.soak.upstream import UNASKED

TOKEN = re.compile(r"tok-[0-9a-f]{12}")
ONCE = ("paid", "shipped")  # the files of what may run once only


def new_token() -> str:
    """A word that nobody else says."""
    return f"tok-{uuid4().hex[:12]}"


@dataclass(slots=True)
class Ledger:
    """Promises, and what has become of them. Calls are known by their references, answers by their ids."""

    done: Counter[str] = field(default_factory=Counter[str])
    retried: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    ends: Counter[str] = field(default_factory=Counter[str])  # of answers in the background, jobs and approved calls
    seconds: list[float] = field(default_factory=list[float])
    lost: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    # Calls with side effects
    approved: set[str] = field(default_factory=set[str])  # and told that it was done
    interrupted: set[str] = field(default_factory=set[str])  # and told that it may or may not have been done
    doubtful: dict[str, str] = field(default_factory=dict[str, str])  # approved, and nothing is known yet; with their approvals
    denied: set[str] = field(default_factory=set[str])
    # Answers that were acknowledged, with what they have to say
    stored: dict[str, str] = field(default_factory=dict[str, str])
    background: dict[str, str] = field(default_factory=dict[str, str])
    conversations: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    ran_twice: int = 0
    raised: Counter[str] = field(default_factory=Counter[str])  # in the log of the server

    def own(self, token: str, text: str) -> None:
        """Only this client's words may stand in the text, and they do."""
        if set(TOKEN.findall(text)) != {token}:
            self.wrong.append(f"{token} was answered with {text[:300]!r}")

    def same(self, said: str, text: str, where: str) -> None:
        """The answer is whole, and nothing but what was said."""
        if text.split() != said.split():
            self.wrong.append(f"{where}: {said[:80]!r} was answered with {text[:300]!r}")

    def called(self, reference: str, approval: Any) -> None:
        """What the server says of an approved call."""
        result = approval["result"] or {}
        if approval["status"] == "done" and (result.get("ok") or result.get("code") == "accepted"):
            self.approved.add(reference)
            self.ends["call: done"] += 1
        elif approval["status"] == "done":
            self.interrupted.add(reference)
            self.ends[f"call: {result.get('code') or 'failed'}"] += 1
        else:
            return
        self.doubtful.pop(reference, None)

    def check_calls(self, folder: Path) -> None:
        """Hold what the tools have noted against what was promised."""
        ran: Counter[str] = Counter()
        for name in ONCE:
            file = folder / name
            ran.update(file.read_text().split() if file.exists() else ())
        twice = [f"{reference} ran {times} times" for reference, times in ran.items() if times > 1]
        self.ran_twice += len(twice)
        self.wrong += twice
        self._wrong("was approved and done, and did not run", self.approved - ran.keys())
        self._wrong("was denied, and ran", self.denied & ran.keys())
        self._wrong("ran, and was called by nobody", {name for name in ran if name.startswith(UNASKED)})
        allowed = self.approved | self.interrupted | self.doubtful.keys()
        self._wrong("ran, and nobody had allowed it", {name for name in ran.keys() - allowed if not name.startswith(UNASKED)})

    def _wrong(self, what: str, references: Iterable[str]) -> None:
        self.wrong += [f"{reference} {what}" for reference in sorted(references)]
