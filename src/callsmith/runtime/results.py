"""What a model is told about its calls: results in full or cut, and failures in words that help it on."""

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches

from callsmith.core.values import Call, Message, Result

_MOST_NAMES = 50  # of the tools listed for a model that called one which does not exist


def failed(call: Call, code: str, text: str, *, label: str = "") -> Result:
    """A failure; the text begins with what kind it is: the code, unless another word helps the model more."""
    return Result(call.id, call.name, f"{label or code}: {text}", ok=False, code=code)


def tool_raised(call: Call, error: BaseException) -> Result:
    """The result of a tool that raised: what the error says, or at least what it is."""
    try:
        said = str(error)
    except Exception:
        said = ""
    return failed(call, "internal_error", said or type(error).__name__)


def unknown_tool(call: Call, tools: Iterable[str]) -> Result:
    known = list(tools)
    close = get_close_matches(call.name, known, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    listed = ", ".join(known[:_MOST_NAMES]) or "none"
    return failed(call, "bad_request", f"there is no tool {call.name!r}.{hint} The tools are: {listed}{more}")


def result_message(result: Result, most: int) -> tuple[Message, int]:
    """The message for the model, and how many characters of the result it leaves out. Raises where the content is no JSON."""
    message = Message.tool(result)
    text, missing = message.content, len(message.content) - most
    if missing > 0:
        text = f"{text[:most]}\n[Cut here: {missing:,} of {len(text):,} characters are missing.]"
    text = _encodable(text)
    return (message if text == message.content else replace(message, content=text)), max(0, missing)


def _encodable(text: str) -> str:
    """Text that can be written as UTF-8: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
