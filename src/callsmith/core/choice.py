"""The choice policy: what an "auto" tool choice is turned into.

Small models with a free choice tend to talk instead of calling, or to call for ever. Requiring a call only until there is a first
result prevents both. Messages are the only state: the first hop is the one before any result since the user's last message.
"""

from collections.abc import Sequence
from typing import get_args

from callsmith.core.errors import UnknownName
from callsmith.core.values import Choice, ChoicePolicy, Message, Request

FIND = "find_tools"  # the tool that searches for tools; a call of it is not the required call
POLICIES: dict[str, ChoicePolicy] = {name: name for name in get_args(ChoicePolicy)}


def policy_named(name: str, field: str | None = None) -> ChoicePolicy:
    """The choice policy of this name. `field` is where the name was given, for the error message."""
    if name not in POLICIES:
        raise UnknownName("choice policy", name, POLICIES, field=field)
    return POLICIES[name]


def chosen(request: Request, policy: ChoicePolicy) -> Choice:
    """The choice for this request. The policy decides only if the request's own choice is "auto" and there are tools."""
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
    """Whether there is no result since the user's last message, apart from a search for tools."""
    relevant = (message for message in reversed(messages) if message.role in ("user", "tool") and message.name != FIND)
    return next((message.role for message in relevant), "user") == "user"
