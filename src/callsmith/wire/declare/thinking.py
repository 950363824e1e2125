"""How much a model is to reason, as requests say it: whether at all, with which effort, in how many tokens."""

from typing import TypedDict, cast

from callsmith.core.types.thinking import EFFORTS, MOST_BUDGET, Effort
from callsmith.wire import declare
from callsmith.wire.fields import Fields

NO_EFFORT = "none"
_NAMES = ("thinking_token_budget", "thinking_budget", "thinking_budget_tokens", "max_thinking_tokens")


class Thinking(TypedDict):
    """The fields of a `Request` that say how much is to be reasoned."""

    thinking: bool | None
    effort: Effort | None
    thinking_budget: int | None


def settle_thinking(enabled: bool | None = None, effort: str | None = None, budget: int | None = None) -> Thinking:
    """What a request asks for with these. An effort asks for reasoning where nothing else says whether; no tokens are none.

    >>> settle_thinking(effort="low")
    {'thinking': True, 'effort': 'low', 'thinking_budget': None}
    >>> settle_thinking(budget=0)
    {'thinking': False, 'effort': None, 'thinking_budget': None}
    """
    if enabled is None and effort is not None:
        enabled = effort != NO_EFFORT
    if enabled is False or budget == 0:
        return Thinking(thinking=False, effort=None, thinking_budget=None)
    known = None if effort == NO_EFFORT else cast(Effort | None, effort)
    return Thinking(thinking=enabled, effort=known, thinking_budget=budget)


def read_effort(fields: Fields, key: str) -> str | None:
    """How much effort is asked for, or none."""
    effort = fields.text(key)
    if effort is not None and effort != NO_EFFORT and effort not in EFFORTS:
        raise fields.error(key, f"{effort[:80]!r} is none of {', '.join((NO_EFFORT, *EFFORTS))}")
    return effort


def read_budget(fields: Fields, key: str) -> int | None:
    """The most tokens of reasoning; with -1 there is no limit."""
    return None if fields.get(key) == -1 else fields.integer(key, 0, MOST_BUDGET)


def _budget(about: str) -> declare.Field[int]:
    return declare.Field("integer", read_budget, about, **declare.bounds(-1, MOST_BUDGET))


class BudgetFields(declare.RequestFields):
    """The most tokens of reasoning, under the names that it has elsewhere."""

    thinking_token_budget = _budget("The most tokens of reasoning: 0 switches it off, -1 is as many as the model likes.")
    thinking_budget = _budget("As thinking_token_budget.")
    thinking_budget_tokens = _budget("As thinking_token_budget.")
    max_thinking_tokens = _budget("As thinking_token_budget.")

    def read_budget(self) -> int | None:
        """The most tokens of reasoning, where the request says; of several numbers the least."""
        given = [read_budget(self, name) for name in _NAMES if self.get(name) is not None]
        return min((budget for budget in given if budget is not None), default=None)


def _read_template_options(fields: Fields, key: str) -> Fields:
    options = fields.required_object(key)
    for name in options.data:
        if name not in ("enable_thinking", "thinking", "reasoning_effort", "thinking_budget"):
            raise options.error(name, "is not supported")
    return options


class ThinkingFields(BudgetFields):
    """Whether the model is to reason, and how much."""

    chat_template_kwargs = declare.Field(
        "partial {enable_thinking: boolean, thinking: boolean, reasoning_effort: string, thinking_budget: integer}",
        _read_template_options,
    )
    reasoning_effort = declare.Field("string", read_effort, "none switches thinking off.", enum=[NO_EFFORT, *EFFORTS])

    def read_thinking(self, effort: str | None = None) -> Thinking:
        """How much the model is to reason, where the request says; an effort that comes first decides whether."""
        options = self.chat_template_kwargs or Fields.of({}, self.at("chat_template_kwargs"))
        enabled, thinking = options.flag("enable_thinking"), options.flag("thinking")
        budget = self.read_budget()
        if budget is None and options.get("thinking_budget") is not None:
            budget = read_budget(options, "thinking_budget")
        if effort is not None:
            return settle_thinking(None, effort, budget)
        effort = self.reasoning_effort or read_effort(options, "reasoning_effort")
        return settle_thinking(thinking if enabled is None else enabled, effort, budget)
