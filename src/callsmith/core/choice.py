"""The choice policy: what becomes of a choice that leaves it to the model.

Small models that may choose tend to talk instead of calling, or to call for ever. Requiring a call only until the first result is
there breaks both habits. Messages are the only state: the first hop is the one before any result after the user's last words.
"""

from collections.abc import Sequence
from typing import get_args

from callsmith.core.errors import UnknownName
from callsmith.core.values import Choice, ChoicePolicy, Message, Request

FIND = "find_tools"  # what looks for tools; a call of it is not yet the call that was demanded
POLICIES: dict[str, ChoicePolicy] = {name: name for name in get_args(ChoicePolicy)}


def policy_named(name: str, field: str | None = None) -> ChoicePolicy:
    """The policy of that name. `field` says where the name came from."""
    if name not in POLICIES:
        raise UnknownName("choice policy", name, POLICIES, field=field)
    return POLICIES[name]


def chosen(request: Request, policy: ChoicePolicy) -> Choice:
    """The choice that holds for this request. A policy decides only where it is "auto" and there are tools."""
    if request.choice.mode != "auto" or not request.tools:
        return request.choice
    required = Choice("required", request.choice.names)
    match request.policy or policy:
        case "auto":
            return request.choice
        case "required_first_hop":
            return required if on_first_hop(request.messages) else request.choice
        case "required_always":
            return required


def on_first_hop(messages: Sequence[Message]) -> bool:
    """Whether no tool has answered since the user last spoke, but for a search among tools."""
    words = (message for message in reversed(messages) if message.role in ("user", "tool") and message.name != FIND)
    return next((message.role for message in words), "user") == "user"
