"""Results as messages for the model: cut where they are too long, and encodable."""

from dataclasses import replace
from logging import Logger

from callsmith.core.errors import CallsmithError
from callsmith.core.failures import failed
from callsmith.core.types.escaped_text import cut_text
from callsmith.core.values import Call, Message, Result


def tool_raised(call: Call, error: BaseException) -> Result:
    """The result of a tool that raised an exception: its message, or its type where it has none."""
    try:
        said = str(error)
    except Exception:
        said = ""
    return failed(call, "internal_error", said or type(error).__name__)


def log_raised(log: Logger, words: str, call: Call, error: BaseException) -> None:
    """Log what a tool raised, in `words` with its name and that: what says itself what is wrong is one line."""
    says = isinstance(error, CallsmithError)
    log.error(words, call.name, error if says else type(error).__name__, exc_info=None if says else error)


def result_message(result: Result, most: int) -> tuple[Message, int]:
    """The message for the model, and how many characters of the result it leaves out. Raises where the content is not JSON."""
    message = Message.tool(result)
    text = _encodable(cut_text(message.content, most))
    return (message if text == message.content else replace(message, content=text)), max(0, len(message.content) - most)


def _encodable(text: str) -> str:
    """Text that can be written as UTF-8: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
