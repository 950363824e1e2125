"""Errors, grouped by who can fix them.

    CallsmithError
    ├─ UsageError              the programmer (or API client) fixes it; raised when things are built, before any run
    │   ├─ UnsupportedSchema     .path .keyword
    │   ├─ UnknownName           .kind .name .known
    │   ├─ PromptTooLong         .tokens .context
    │   └─ MissingExtra          .extra
    ├─ ModelError              the operator fixes it       .retryable .hint
    │   ├─ Unavailable           .seconds   not there, or not in working order
    │   │   └─ StoreUnavailable    the server's store
    │   ├─ TimedOut
    │   ├─ GrammarFailed         the engine gives up on a grammar: simpler tools, or a simpler output, may do
    │   └─ Rejected              .status .seconds   the upstream said no
    │       └─ GrammarRefused      to a grammar; a looser one may do
    ├─ CallFailed              .code .seconds .sent   what was called outside of this program has failed
    ├─ LimitReached            .limit
    │   ├─ QueueFull             .seconds   it may work later
    │   └─ RateLimited           .seconds .headers   a caller has used what it may
    └─ ConfirmationRequired    .needed   a call has to be confirmed first (in core/approval.py)

A *model* never sees these: it gets `Result(ok=False, code=...)`.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from math import ceil

_MOST_COMPARED, _LONGEST_COMPARED = 500, 256  # names, and characters of one: what is similar takes long to find
_MOST_SHOWN = 50  # names that a message lists


def shorten(text: str, most: int = 200) -> str:
    """The text, cut behind so many characters."""
    return text if len(text) <= most else f"{text[:most]}…"


def list_names(names: Iterable[str]) -> str:
    """The names, for a message: not all of many, and not all of a long one."""
    known = sorted(names)
    more = f" and {len(known) - _MOST_SHOWN} more" if len(known) > _MOST_SHOWN else ""
    return (", ".join(map(shorten, known[:_MOST_SHOWN])) or "none") + more


class CallsmithError(Exception):
    """The base class of all errors that callsmith raises on purpose."""


class UsageError(CallsmithError):
    """The program or request is wrong. `field` names the part that is (`tools.0.name`), where there is one."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class UnsupportedSchema(UsageError):
    """A JSON Schema that is not valid, or that cannot be enforced."""

    def __init__(self, path: str, keyword: str, why: str, *, field: str | None = None) -> None:
        super().__init__(f"unsupported schema at {path or '#'}, keyword {keyword!r}: {why}", field=field)
        self.path = path
        self.keyword = keyword
        self.why = why


class UnknownName(UsageError):
    """A name that is not one of the known ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, field: str | None = None) -> None:
        self.kind = kind
        self.name = name
        self.known = tuple(known)
        looked_at = self.known[:_MOST_COMPARED] if len(name) <= _LONGEST_COMPARED else ()
        close = get_close_matches(name, looked_at, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {list_names(self.known)}"
        super().__init__(f"unknown {kind} {shorten(name)!r}; {hint}", field=field)


class PromptTooLong(UsageError):
    """A prompt that leaves no room for an answer in the context. `is_least`: it has more `tokens` than were counted.

    `says`: how another server has put it, where it was the one to count; numbers that it does not give are 0.
    """

    def __init__(self, tokens: int, context: int, *, is_least: bool = False, says: str = "") -> None:
        counted = f"at least {tokens}" if is_least else f"{tokens}"
        super().__init__(says or f"the prompt is too long: {counted} tokens > {context} that the context holds, answer included")
        self.tokens = tokens
        self.context = context


class MissingExtra(UsageError):
    """An optional dependency of callsmith is not installed."""

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'callsmith[{extra}]'")
        self.extra = extra


class ModelError(CallsmithError):
    """The model or its engine has failed. `hint` says what the operator can do."""

    def __init__(self, message: str, *, hint: str = "", retryable: bool = False) -> None:
        super().__init__(f"{message}\n{hint}" if hint else message)
        self.message = message
        self.hint = hint
        self.retryable = retryable


class Unavailable(ModelError):
    """The engine, the library, the weights or another server are missing or do not work.

    `seconds` is roughly when a retry may succeed, where that is known.
    """

    def __init__(self, message: str, *, hint: str = "", retryable: bool = False, seconds: float | None = None) -> None:
        super().__init__(message, hint=hint, retryable=retryable)
        self.seconds = seconds


class StoreUnavailable(Unavailable):
    """The server's store is unreachable or does not work."""

    def __init__(self, message: str, *, hint: str = "", seconds: float = 1.0) -> None:
        super().__init__(message, hint=hint, retryable=True, seconds=seconds)


class TimedOut(ModelError):
    """No answer within the time allowed."""


class Rejected(ModelError):
    """The upstream refused; `status` is its HTTP status, `seconds` when it wants to be asked again, if it says so."""

    def __init__(
        self, message: str, *, status: int, hint: str = "", retryable: bool = False, seconds: float | None = None
    ) -> None:
        super().__init__(message, hint=hint, retryable=retryable)
        self.status = status
        self.seconds = seconds


class GrammarRefused(Rejected):
    """The upstream does not take a grammar; nothing of the answer has come."""


class GrammarFailed(ModelError):
    """The engine gives up on a grammar in the middle of an answer: what the request asks for is too ambiguous to be enforced."""


class CallFailed(CallsmithError):
    """A call that something outside of this program was to run has failed; `code` says how, in the words of its protocol.

    `seconds` is when a retry may succeed, where that is known. `sent`: whoever was called may have begun to run it.
    """

    def __init__(self, code: str, message: str = "", *, seconds: float | None = None, sent: bool = False) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message or code
        self.seconds = seconds
        self.sent = sent


class LimitReached(CallsmithError):
    """A limit the caller set was reached."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class QueueFull(LimitReached):
    """The queue of requests is full; `seconds` is roughly when a retry may succeed."""

    def __init__(self, most: int, seconds: float = 1.0) -> None:
        super().__init__("queue_full", f"{most} answers are being given or waited for; try again later")
        self.seconds = seconds


class RateLimited(LimitReached):
    """A caller has used up what it may use; after `seconds` a retry may succeed. `headers` say what is left of which limit."""

    def __init__(self, limit: str, message: str, seconds: float = 1.0, headers: Mapping[str, str] | None = None) -> None:
        super().__init__("rate_limit_exceeded", f"{message} (limit: {limit}); try again in {max(1, ceil(seconds))} s")
        self.seconds = seconds
        self.headers = headers or {}
