"""Requests as a small model understands them: a line behind the latest result, or the question with all results behind it.

Both stand only in the request the model sees, never in the conversation.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from callsmith.core.values import Request
from callsmith.runtime.guards.loop_detectors import RecentCalls

_LONG_INTEGER = re.compile(r"(?<![\w.,-])[1-9]\d{4,14}(?![\w-]|[.,]\d)")
ANSWER = "Now answer the previous request in one short sentence."


def with_line(request: Request, line: str) -> Request:
    """The request with a line behind the latest result: every template renders it there, and no unexpected role is needed."""
    *before, last = request.messages
    return replace(request, messages=(*before, replace(last, content=f"{last.content}\n{line}")))


def question_with_results(request: Request, hint: str = "") -> Request:
    """The user's question with all results behind it and without the calls: a small model that sees calls writes calls."""
    at = max((place for place, message in enumerate(request.messages) if message.role == "user"), default=None)
    if at is None:
        return with_line(request, f"({hint or ANSWER})")
    steps = {step.fingerprint: step for step in RecentCalls.of(request).calls}.values()
    times = Counter(step.call.name for step in steps)
    results = [f"{step.call.name}{f' {step.call.text}' * (times[step.call.name] > 1)} -> {step.result}" for step in steps]
    said = request.messages[at]
    question = replace(said, content=f"{said.content}\n\n{list_results(results, hint)}")
    return replace(request, messages=(*request.messages[:at], question), policy="auto")


def with_grouped_digits(request: Request) -> Request:
    """The request with 97310 as 97,310 in its last message: small models misread long rows of digits."""
    *before, last = request.messages
    content = _LONG_INTEGER.sub(lambda match: f"{int(match[0]):,}", last.content)
    return replace(request, messages=(*before, replace(last, content=content)))


def list_results(results: Iterable[str], hint: str = "") -> str:
    """Results in one line, for a message of the user's."""
    return f"(system: tool results — {'; '.join(results)}. {hint and hint + ' '}{ANSWER})"
