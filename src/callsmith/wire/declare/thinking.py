"""How much a model is to reason, as requests say it: whether at all, with which effort, in how many tokens."""

from collections.abc import Mapping
from typing import TypeAlias, TypedDict, cast

from callsmith.core.types.thinking import EFFORTS, MOST_BUDGET, Effort
from callsmith.wire import declare
from callsmith.wire.fields import Fields

NO_EFFORT = "none"
_NAMES = ("thinking_token_budget", "thinking_budget", "thinking_budget_tokens", "max_thinking_tokens")
_SWITCHES: Mapping[str, bool | None] = {"enabled": True, "disabled": False, "adaptive": True, "auto": None}
_Said: TypeAlias = tuple[bool | None, str | None, int | None]  # whether to reason, the effort, and the most tokens


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

    def said_of_thinking(self) -> list[_Said]:
        """What the request says, in the order in which it counts."""
        options = self.chat_template_kwargs or Fields.of({}, self.at("chat_template_kwargs"))
        enabled, thinking = options.flag("enable_thinking"), options.flag("thinking")
        template = thinking if enabled is None else enabled, read_effort(options, "reasoning_effort")
        return [(None, self.reasoning_effort, self.read_budget()), (*template, _read_own_budget(options, "thinking_budget"))]

    def read_thinking(self, effort: str | None = None) -> Thinking:
        """How much the model is to reason, where the request says; an effort that comes first decides whether."""
        said = self.said_of_thinking()
        budget = min((budget for _, _, budget in said if budget is not None), default=None)
        if effort is not None:
            return settle_thinking(None, effort, budget)
        enabled = next((switch for switch, _, _ in said if switch is not None), None)
        return settle_thinking(enabled, next((wanted for _, wanted, _ in said if wanted), None), budget)


def _read_own_budget(fields: Fields, key: str) -> int | None:
    return None if fields.get(key) is None else read_budget(fields, key)


def _read_switch(fields: Fields, key: str) -> _Said:
    value = fields.get(key)
    if isinstance(value, bool):
        return value, None, None
    switch = fields.required_object(key)
    spelled = switch.required_text("type")
    if spelled not in _SWITCHES:
        raise switch.error("type", f"{spelled[:80]!r} is none of {', '.join(_SWITCHES)}")
    return _SWITCHES[spelled], None, _read_own_budget(switch, "budget_tokens")


def _read_reasoning(fields: Fields, key: str) -> _Said:
    wanted = fields.required_object(key)
    return wanted.flag("enabled"), read_effort(wanted, "effort"), _read_own_budget(wanted, "max_tokens")


class ChatThinkingFields(ThinkingFields):
    """Whether the model is to reason, and how much, as services and routers of chat completions spell it besides."""

    enable_thinking = declare.flag("As in chat_template_kwargs.")
    thinking = declare.Field(
        "boolean | partial {type: string, budget_tokens: integer}", _read_switch, f"A type of {', '.join(_SWITCHES)}."
    )
    reasoning = declare.Field(
        "partial {effort: string, enabled: boolean, max_tokens: integer, exclude: boolean}", _read_reasoning
    )

    def said_of_thinking(self) -> list[_Said]:
        besides = (self.enable_thinking, None, None), self.thinking, self.reasoning
        return [*super().said_of_thinking(), *filter(None, besides)]

    @property
    def hides_thoughts(self) -> bool:
        """Whether reasoning is not to be shown."""
        wanted = self.object("reasoning")
        return wanted is not None and bool(wanted.flag("exclude"))
