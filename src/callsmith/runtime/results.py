"""What comes of calls: which failures may pass, so that the call is made again, and what the model reads.

Results are messages for the model: cut where they are too long, and encodable.
"""

from dataclasses import replace
from logging import Logger
from typing import Final, cast

from callsmith.core.errors import CallsmithError, ModelError
from callsmith.core.failures import make_failure
from callsmith.core.types.escaped_text import cut_text
from callsmith.core.values import Call, Message, Result

_PAUSE: Final = 0.25  # seconds before the second attempt; twice as many before the third, and so on
_CODES: Final = ("timeout", "unavailable")
# As the standard library, requests, httpx and aiohttp call them.
_ERRORS: Final = frozenset({"ConnectionError", "TimeoutError", "Timeout", "TransportError", "ClientConnectionError"})


def pause_before_retry(attempt: int) -> float:
    """Seconds between an attempt that has failed, the first of which is 1, and the next."""
    return _PAUSE * 2 ** (attempt - 1)


def reason_to_retry(failure: Result | Exception) -> str:
    """What went wrong, where the same call may go well a little later: nothing was reached, or it took too long. Else empty."""
    if isinstance(failure, Result):
        return (failure.text or failure.code) if not failure.ok and failure.code in _CODES else ""
    return _words_of(failure) if all(map(_may_pass, _errors_in(failure))) else ""


def _may_pass(error: BaseException) -> bool:
    return getattr(error, "retryable", False) is True or any(kind.__name__ in _ERRORS for kind in type(error).__mro__)


def _errors_in(error: BaseException) -> list[BaseException]:
    """The error, or those of a group: what a TaskGroup raises says nothing by itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return [found for each in inner for found in _errors_in(each)]


def _words_of(error: BaseException) -> str:
    return "; ".join(dict.fromkeys(map(_word_of, _errors_in(error))))


def _word_of(error: BaseException) -> str:
    try:
        text = error.message if isinstance(error, ModelError) else str(error)
    except Exception:
        text = ""
    return text or type(error).__name__


def make_error_result(call: Call, error: BaseException) -> Result:
    """The result of a tool that raised an exception: its message, or its type where it has none.

    A hint is the operator's and may name addresses: it is logged, and no model and no client reads it.
    """
    return make_failure(call, "internal_error", _words_of(error))


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
