"""LangChain's human-in-the-loop, and our approvals: one asks what the other asks, and takes the other's decisions.

Both are values: what a LangGraph agent shows when it pauses (a `HITLRequest`), what it is resumed with (`{"decisions": […]}`),
and the `interrupt_on` of `HumanInTheLoopMiddleware`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from callsmith.core.approval import Approved, Decision, Denied, Policy, Rule
from callsmith.core.errors import UsageError
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.types.json_types import Json

ALLOWED = ("approve", "edit", "reject")


def write_request(*needed: ConfirmationNeeded) -> dict[str, Any]:
    """The questions as LangChain's middleware asks them."""
    return {
        "action_requests": [
            {"name": item.call.name, "args": dict(item.call.arguments), "description": item.reason or item.call.name}
            for item in needed
        ],
        "review_configs": [
            {"action_name": name, "allowed_decisions": list(ALLOWED)} for name in dict.fromkeys(item.call.name for item in needed)
        ],
    }


def read_decisions(response: Any, needed: Sequence[ConfirmationNeeded]) -> list[Decision]:
    """The decisions on these questions, in their order. One question may also be answered by its decision alone."""
    fields = _mapping(response, "an answer")
    decisions = cast("list[Any]", fields["decisions"]) if isinstance(fields.get("decisions"), list) else [fields]
    if len(decisions) != len(needed):
        raise UsageError(f"{len(needed)} calls wait for a decision, and {len(decisions)} decisions came", field="decisions")
    return [read_decision(decision, question.call.name) for decision, question in zip(decisions, needed, strict=True)]


def read_decision(decision: Any, name: str) -> Decision:
    """One decision on a call of the tool of this name."""
    fields = _mapping(decision, "a decision")
    match fields.get("type"):
        case "approve":
            return Approved()
        case "reject":
            return Denied(str(fields.get("message") or ""))
        case "edit":
            edited = _mapping(fields.get("edited_action"), "edited_action")
            if edited.get("name", name) != name:
                raise UsageError(f"the call of {name} cannot become one of {edited['name']}: only its arguments can be edited")
            return Approved(cast("dict[str, Json]", _mapping(edited.get("args"), "edited_action.args")))
        case other:
            raise UsageError(f"{other!r} is no decision on {name}; expected one of {', '.join(ALLOWED)}", field="decisions")


def write_decision(decision: Decision, name: str) -> dict[str, Any]:
    """A decision of ours, as a LangGraph agent is resumed with it."""
    if isinstance(decision, Denied):
        return {"type": "reject", **({"message": decision.message} if decision.message else {})}
    if decision.arguments is None:
        return {"type": "approve"}
    return {"type": "edit", "edited_action": {"name": name, "args": dict(decision.arguments)}}


def read_interrupt_on(interrupt_on: Mapping[str, Any]) -> Policy:
    """The `interrupt_on` of `HumanInTheLoopMiddleware` as a policy, for `Confirmed`: those tools are asked about, others run."""
    rules: list[Rule] = []
    for name, config in interrupt_on.items():
        if isinstance(config, Mapping) and cast("Mapping[str, Any]", config).get("when") is not None:
            raise UsageError(f"the condition on {name} is for LangGraph's state; write it as Rule(when=…) over the arguments")
        rules.append(Rule("ask" if config else "auto", tools=name, reason=f"{name} is to be approved"))
    return Policy(tuple(rules), side_effects="auto")


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{what} must be an object, got {type(value).__name__}", field="decisions")
    return cast("Mapping[str, Any]", value)
