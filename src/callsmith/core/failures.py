"""Results of calls that failed: a code for programs, and a text from which a model learns what to do instead."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from callsmith.core.values import Call, Result

_CODES = "bad_request bad_result cancelled denied expired internal_error interrupted invalid_arguments limit_reached not_found"
_FAILURE = re.compile(f"(?:{_CODES.replace(' ', '|')}|timeout|tool_error|unavailable): ")  # as the text of `failed` begins
CACHED = "cached"  # the code of a result that a cache had
_MOST_NAMES = 50  # of the tools listed for a model that called one which does not exist


def make_failure(call: Call, code: str, text: str, *, label: str = "") -> Result:
    """The result of a call that failed or was not run. Its text begins with the code, or with the label where one is given."""
    return Result(call.id, call.name, f"{label or code}: {text}", ok=False, code=code)


def already_done(call: Call, earlier: str) -> Result:
    """The result of a call that would need approval, but was approved and made in the same turn: it is not made again."""
    text = f"{earlier}\n(This call was approved and made before; it was not made again.)"
    return Result(call.id, call.name, text, code="already_done")


def is_failure(text: str) -> bool:
    """Whether a result reads like one of a call that failed or was not run."""
    return _FAILURE.match(text) is not None


def unknown_tool(call: Call, tools: Iterable[str]) -> Result:
    """The result of a call of a tool that does not exist; the text lists the tools that do."""
    known = list(tools)
    close = get_close_matches(call.name, known, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    listed = ", ".join(known[:_MOST_NAMES]) or "none"
    return make_failure(call, "bad_request", f"there is no tool {call.name!r}.{hint} The tools are: {listed}{more}")
