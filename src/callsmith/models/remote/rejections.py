"""What another server's refusal means, and for whom: the client, or the operator."""

import re
from typing import Final

from callsmith.core.errors import CallsmithError, PromptTooLong, Rejected, UsageError

_TOO_LONG: Final = re.compile(
    r"context[ _](?:length|size|window)|maximum context|(?:prompt|input) is too long|too many tokens"
    r"|(?:input|prompt|request).{0,40}exceeds.{0,40}(?:tokens|context)",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\d[\d,_]{0,11}(?= (?:\w+ )?tokens?\b| maximum\b| that the context)", re.IGNORECASE)
_NO_TOOLS: Final = re.compile(
    r"(?:does not|doesn't|do not) support (?:tools?|functions?|tool[ _](?:calls?|calling|use|choice)|function[ _]call)"
    r"|enable-auto-tool-choice|requires? --jinja|tools? param requires|(?:tools?|tool_choice|function[ _]call\w*)\W.{0,30}"
    r"(?:not supported|unsupported|not allowed|unknown field|unrecognized)",
    re.IGNORECASE,
)
_NO_MODEL: Final = re.compile(r"model", re.IGNORECASE)


def refuses_tools(error: Rejected) -> bool:
    """Whether a server says that it, or its model, has no tools."""
    return error.status in (400, 404, 405, 422, 500, 501) and _NO_TOOLS.search(error.message) is not None


def refuses_model(error: Rejected) -> bool:
    """Whether a server says that it has no such model."""
    return error.status == 404 and _NO_MODEL.search(error.message) is not None


def explain_rejection(error: Rejected, *, url: str, key_variable: str) -> CallsmithError:
    """The error to raise in place of a refusal."""
    if error.status in (401, 403):
        # What it says may quote a part of the key: that is for the operator, not for clients.
        hint = f"It says: {error.message}\nIs the key in {key_variable} set, and is it the right one?"
        return Rejected(f"{url} does not accept this server's key ({error.status})", status=error.status, hint=hint)
    if error.status in (400, 413, 422) and _TOO_LONG.search(error.message):
        return _too_long(error.message)
    if error.status in (400, 413, 415, 422):
        return UsageError(error.message)
    return error


def _too_long(message: str) -> PromptTooLong:
    """The error with the numbers that the message gives, of which the larger one is that of the prompt."""
    numbers = sorted({int(re.sub(r"\D", "", number)) for number in _NUMBER.findall(message)})
    context, tokens = (numbers[-2], numbers[-1]) if len(numbers) > 1 else (numbers[0] if numbers else 0, 0)
    return PromptTooLong(tokens, context, says=message)
