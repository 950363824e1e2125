"""Approval: which calls run by themselves, which a person is asked about first, and what that person may say.

Policies are data and decide nothing by themselves: `tools.wrap.Confirmed` applies one, the loop pauses, and the answer comes back
as a `Decision` in the next run's `Context`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from callsmith.core.errors import CallsmithError
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.values import Call, Json, Tool

Verdict: TypeAlias = Literal["auto", "ask", "deny"]  # in the order of strictness

_STRICTNESS: Mapping[Verdict, int] = {"auto": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class Approved:
    """The call may run: with other arguments if some are given, and without asking again in this conversation if remembered."""

    arguments: Mapping[str, Json] | None = None
    remember: bool = False


@dataclass(frozen=True, slots=True)
class Denied:
    """The call may not run. The message is for the model."""

    message: str = ""


Decision: TypeAlias = Approved | Denied


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and, for the person who is asked, the reason."""

    verdict: Verdict
    reason: str = ""

    def stricter(self, other: "Judgement") -> "Judgement":
        return other if _STRICTNESS[other.verdict] > _STRICTNESS[self.verdict] else self


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to calls of these tools (shell patterns for name and source), with these side effects, with such arguments.

    A tool that has another name here than at its source is meant by either.
    """

    then: Verdict
    tools: str = "*"
    sources: str = "*"
    side_effects: bool | None = None  # None: whether or not it has any
    when: Callable[[Mapping[str, Json]], bool] | None = None
    reason: str = ""

    def applies(self, tool: Tool, call: Call) -> bool:
        return (
            any(fnmatchcase(name, self.tools) for name in {tool.name, tool.original or tool.name})
            and fnmatchcase(tool.source, self.sources)
            and self.side_effects in (None, tool.side_effects)
            and (self.when is None or self.when(call.arguments))
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules, the first that applies counts; where none does, calls with side effects are asked about and others run."""

    rules: tuple[Rule, ...] = ()
    side_effects: Verdict = "ask"
    otherwise: Verdict = "auto"
    also: tuple["Policy", ...] = field(default=())  # further policies, which can only tighten

    def judge(self, tool: Tool, call: Call) -> Judgement:
        """What is to happen to this call."""
        judged = self._own(tool, call)
        for policy in self.also:
            judged = judged.stricter(policy.judge(tool, call))
        return judged

    def tightened(self, by: "Policy") -> "Policy":
        """Both policies: of their verdicts the stricter counts."""
        return Policy(self.rules, self.side_effects, self.otherwise, (*self.also, by))

    def _own(self, tool: Tool, call: Call) -> Judgement:
        for rule in self.rules:
            try:
                applies = rule.applies(tool, call)
            except Exception as error:  # a rule that cannot decide leaves it to a person
                return Judgement("ask", f"a rule for {tool.name} failed: {error or type(error).__name__}")
            if applies:
                return Judgement(rule.then, rule.reason or f"a rule for {tool.name} says so")
        if tool.side_effects:
            return Judgement(self.side_effects, f"{tool.name} has side effects")
        return Judgement(self.otherwise, "every call is asked about")


class ConfirmationRequired(CallsmithError):
    """A call that may not run before a person has approved it; it has not run."""

    def __init__(self, needed: ConfirmationNeeded) -> None:
        super().__init__(f"requires_confirmation: {needed.reason or needed.call.name}")
        self.needed = needed
