"""The choice policy: whether a tool call is required where the request leaves the choice to the model.

Small models that may choose tend to write text instead of a call, or to call without end. Requiring a call only until there is a
first result prevents both. Messages are the only state: the first hop ends with the first result after the last user message.
"""

import re
from collections.abc import Iterable, Sequence
from typing import get_args

from callsmith.core.errors import UnknownName
from callsmith.core.values import Choice, ChoicePolicy, Message, Request

FIND_TOOLS = "find_tools"  # the tool that searches for tools; a call of it does not count as the required call
JOB_RESULT = "job_result"  # the tool that has the results of jobs; neither does a call of it
_FOUND = re.compile(r"^- (\S+):(?: |$)", re.MULTILINE)
MOST_CALL_BIAS = 20.0  # log odds by which calls may be made likelier or rarer: with these there are always some, or none
POLICIES: dict[str, ChoicePolicy] = {name: name for name in get_args(ChoicePolicy)}


def policy_named(name: str, field: str | None = None) -> ChoicePolicy:
    """The policy of that name. `field` is the field the name came from."""
    if name not in POLICIES:
        raise UnknownName("choice policy", name, POLICIES, field=field)
    return POLICIES[name]


def apply_policy(request: Request, policy: ChoicePolicy) -> Choice:
    """The choice for this request under a policy, which changes only "auto", and only where there are tools."""
    if request.choice.mode != "auto" or not request.tools:
        return request.choice
    required = Choice("required", request.choice.names)
    match request.policy or policy:
        case "auto":
            return request.choice
        case "required_first_hop":
            return required if is_first_hop(request.messages) else request.choice
        case "required_always":
            return required


def is_first_hop(messages: Sequence[Message]) -> bool:
    """Whether there is no tool result since the last user message; results of a search for tools do not count."""
    turns = (message for message in reversed(messages) if message.role in ("user", "tool") and message.name != FIND_TOOLS)
    return next((message.role for message in turns), "user") == "user"


def found_text(lines: Iterable[tuple[str, str]]) -> str:
    """The result of a search for tools: the names that were found, each with a line about it."""
    return "These tools can be called now:\n" + "\n".join(f"- {name}: {line}".rstrip(" ") for name, line in lines)


def found_names(text: str) -> list[str]:
    """The names in the result of a search for tools."""
    return _FOUND.findall(text)
