"""Session affinity: which requests the same server had better answer, because it has their beginning in its cache."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from callsmith.core.values import Completion, Message, Request

_BEGINNING = 1024  # characters of a text that is continued as it stands: what is behind them may have been added later
_NO_KEY = "@"  # before the address of a caller who has no key


def affinity_id(request: Request | Completion) -> str:
    """The id of the conversation that this is a part of, in hexadecimal digits: the same for each of its requests.

    It is made of the name that the client gives it; without one, of what all requests of a conversation have in common: the
    system prompt, the names of the tools and the first message of the user. Callers with different keys never have the same.
    """
    owner = "" if request.caller.startswith(_NO_KEY) else request.caller
    named = (request.affinity or request.session) if isinstance(request, Request) else request.session
    if named:
        return _digest("named", owner, named)
    if isinstance(request, Request):
        return _digest("begins", owner, *(tool.name for tool in request.tools), "", *_beginning(request.messages))
    begun = request.prompt[:_BEGINNING]
    return _digest("text", owner, begun if isinstance(begun, str) else repr(begun))


def _beginning(messages: Iterable[Message]) -> Iterator[str]:
    """The messages up to the first one of the user."""
    for message in messages:
        yield message.role
        yield message.content
        if message.role == "user":
            return


def _digest(*parts: str) -> str:
    made = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        made.update(b"%d:" % len(data))
        made.update(data)
    return made.hexdigest()
