"""What goes wrong with other servers, in words: their refusals, pages in place of answers, and connections that break off."""

import json
import re
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, cast

from callsmith.core.errors import MissingExtra, ModelError, Rejected, Unavailable, shorten
from callsmith.wire.errors import reported_error

if TYPE_CHECKING:
    import aiohttp

_RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_MOST_ERROR: Final = 64 * 1024  # bytes that are read of an error
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
NO_API: Final = "Is this the address of an API, and complete (…/v1)?"


class BrokeOff(Unavailable):
    """An answer that had begun, and did not come to its end."""

    def __init__(self, url: str, reason: str = "") -> None:
        super().__init__(f"{url} broke off in the middle of its answer{reason and f': {reason}'}", retryable=True)


class NotReached(Unavailable):
    """There was no connection: the request was not sent."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url} cannot be reached: {reason}", retryable=True, seconds=1.0)


async def read_refusal(server: str, response: "aiohttp.ClientResponse") -> ModelError | None:
    """The error that the status and the body stand for. HTML is the page of a proxy, or of another server than was meant."""
    status, is_page = response.status, response.content_type == "text/html"
    if status < 300 and not is_page:
        return None
    try:
        text = (await response.content.read(_MOST_ERROR)).decode("utf-8", "replace")
    except (load_aiohttp().ClientError, OSError):
        text = ""
    if status < 300:
        return Unavailable(f"{server} answers with {explanation(text)}", hint=NO_API)
    where = ""
    if status < 400:
        where = f" (it points to {shorten(response.headers.get('location', 'nowhere'))}, which is not followed)"
    seconds = _retry_after(response.headers.get("retry-after", ""))
    message = f"{server} answers {status}{where}: {explanation(text)}"
    return Rejected(message, status=status, retryable=status in _RETRIED, seconds=seconds)


def load_aiohttp() -> Any:
    """The HTTP library, which is an extra."""
    try:
        import aiohttp
    except ImportError as error:
        raise MissingExtra("remote", "asking other servers") from error
    return aiohttp


def server_of(response: "aiohttp.ClientResponse") -> str:
    """The server that answers, without the path."""
    return str(response.url.origin())


def reason_of(error: BaseException) -> str:
    return shorten(str(error) or type(error).__name__)


def explanation(text: str) -> str:
    """What a body says about what went wrong, in one line."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        title = _TITLE.search(text)
        if title or text.lstrip()[:1] == "<":
            return f"an HTML page ({shorten(' '.join(title[1].split())) if title else 'without a title'})"
        return shorten(" ".join(text.split())) or "nothing"
    if isinstance(body, dict):
        fields = cast(dict[str, Any], body)
        for key in ("error", "detail", "message"):
            if fields.get(key):
                return shorten(reported_error(fields[key]), 1000)
    return shorten(" ".join(text.split()))


def _retry_after(text: str) -> float | None:
    """Seconds, or until a date."""
    if re.fullmatch(r"\d{1,9}(\.\d+)?", text):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
