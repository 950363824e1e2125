"""Results of calls that failed: a code for programs, and a text from which a model learns what to do instead."""

from collections.abc import Iterable
from difflib import get_close_matches

from callsmith.core.values import Call, Result

_MOST_NAMES = 50  # of the tools listed for a model that called one which does not exist


def failed(call: Call, code: str, text: str, *, label: str = "") -> Result:
    """The result of a call that failed or was not run. Its text begins with the code, or with the label where one is given."""
    return Result(call.id, call.name, f"{label or code}: {text}", ok=False, code=code)


def unknown_tool(call: Call, tools: Iterable[str]) -> Result:
    """The result of a call of a tool that does not exist; the text lists the tools that do."""
    known = list(tools)
    close = get_close_matches(call.name, known, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    listed = ", ".join(known[:_MOST_NAMES]) or "none"
    return failed(call, "bad_request", f"there is no tool {call.name!r}.{hint} The tools are: {listed}{more}")
