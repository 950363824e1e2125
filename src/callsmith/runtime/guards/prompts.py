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
    answered = {one.fingerprint: one for one in RecentCalls.of(request).calls}.values()
    times = Counter(one.call.name for one in answered)
    results = [f"{one.call.name}{f' {one.call.text}' * (times[one.call.name] > 1)} -> {one.result}" for one in answered]
    asked = request.messages[at]
    question = replace(asked, content=f"{asked.content}\n\n{list_results(results, hint)}")
    return replace(request, messages=(*request.messages[:at], question), policy="auto")


def with_grouped_digits(request: Request) -> Request:
    """The request with 97310 as 97,310 in its last message: small models misread long rows of digits."""
    *before, last = request.messages
    content = _LONG_INTEGER.sub(lambda found: f"{int(found[0]):,}", last.content)
    return replace(request, messages=(*before, replace(last, content=content)))


def list_results(results: Iterable[str], hint: str = "") -> str:
    """Results in one line, for a message of the user's."""
    return f"(system: tool results — {'; '.join(results)}. {hint and hint + ' '}{ANSWER})"
