"""Approval: which calls run without asking, which need a person's decision first, and what that decision can be.

Policies are data and decide nothing by themselves: `tools.wrap.Confirmed` applies one, the loop pauses, and the answer comes back
as a `Decision` in the next run's `Context`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from callsmith.core.errors import CallsmithError
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.types.field_checks import check_fields
from callsmith.core.values import Call, Json, Tool

Verdict: TypeAlias = Literal["auto", "ask", "deny"]  # from the least strict to the strictest

_STRICTNESS: Mapping[Verdict, int] = {"auto": 0, "ask": 1, "deny": 2}


@check_fields
@dataclass(frozen=True, slots=True)
class Approved:
    """The call may run: with these arguments if some are given; if `remember`, the tool is not asked about again. `by` is who
    approved it, where callers have names."""

    arguments: Mapping[str, Json] | None = None
    remember: bool = False
    by: str = ""


@check_fields
@dataclass(frozen=True, slots=True)
class Denied:
    """The call may not run. `message` is shown to the model."""

    message: str = ""


Decision: TypeAlias = Approved | Denied


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, and the reason that is shown to the person who is asked."""

    verdict: Verdict
    reason: str = ""

    def stricter(self, other: "Judgement") -> "Judgement":
        return other if _STRICTNESS[other.verdict] > _STRICTNESS[self.verdict] else self


@check_fields
@dataclass(frozen=True, slots=True)
class Rule:
    """The verdict on calls of these tools (shell patterns of name and source), with these side effects, with such arguments.

    A tool that has another name here than at its source matches by either name.
    """

    then: Verdict
    tools: str = "*"
    sources: str = "*"
    side_effects: bool | None = None  # None: with or without
    when: Callable[[Mapping[str, Json]], bool] | None = None
    reason: str = ""

    def applies(self, tool: Tool, call: Call) -> bool:
        return (
            any(fnmatchcase(name, self.tools) for name in {tool.name, tool.original or tool.name})
            and fnmatchcase(tool.source, self.sources)
            and self.side_effects in (None, tool.side_effects)
            and (self.when is None or self.when(call.arguments))
        )


@check_fields
@dataclass(frozen=True, slots=True)
class Policy:
    """Rules, of which the first that applies decides; where none does, calls with side effects are asked about and others run."""

    rules: tuple[Rule, ...] = ()
    side_effects: Verdict = "ask"
    otherwise: Verdict = "auto"
    also: tuple["Policy", ...] = field(default=())  # further policies, which can only make it stricter

    def judge(self, tool: Tool, call: Call) -> Judgement:
        """The verdict on this call."""
        judged = self._own(tool, call)
        for policy in self.also:
            judged = judged.stricter(policy.judge(tool, call))
        return judged

    def tighten(self, by: "Policy") -> "Policy":
        """Both policies combined: the stricter of their verdicts counts."""
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


class ToolChanged(CallsmithError):
    """A call that was approved for a tool that is another one by now; it has not run."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is another tool than the one that was approved")


class ConfirmationRequired(CallsmithError):
    """A call that may not run before a person has approved it; it has not run."""

    def __init__(self, needed: ConfirmationNeeded) -> None:
        super().__init__(f"requires_confirmation: {needed.reason or needed.call.name}")
        self.needed = needed
