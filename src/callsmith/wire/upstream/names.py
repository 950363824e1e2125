"""Names of tools and ids of calls as another API takes them, and back.

>>> names = ToolNames(["files.read", "files_read"], NameRule("A-Za-z0-9_-", 64))
>>> names.outward("files.read"), names.inward("files_read_601e4eb6")
('files_read_601e4eb6', 'files.read')

A name that fits is sent as it is, any other one with `_` in place of what is not allowed; where that is the name of another tool,
or too long, a hash of the name tells them apart. It depends on the other tools only where two would be called the same.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256

from callsmith.core.values import Call, Message, Request


@dataclass(frozen=True, slots=True)
class NameRule:
    """Which names an API takes: the characters, as in a character class, and how many."""

    characters: str = "A-Za-z0-9_.:/-"
    longest: int = 256

    def allows(self, name: str) -> bool:
        return len(name) <= self.longest and re.fullmatch(f"[{self.characters}]+", name) is not None


class ToolNames:
    """The names of the tools of one request, in both directions."""

    def __init__(self, names: Iterable[str], rule: NameRule) -> None:
        wanted = tuple(dict.fromkeys(name for name in names if name))
        self._outward = {name: name for name in wanted if rule.allows(name)}
        taken = set(self._outward)
        for name in wanted:
            if name not in self._outward:
                self._outward[name] = _fitted(name, rule, taken)
                taken.add(self._outward[name])
        self._inward = {sent: name for name, sent in self._outward.items()}
        self.change_any = any(name != sent for name, sent in self._outward.items())

    def outward(self, name: str) -> str:
        """The name that is sent."""
        return self._outward.get(name, name)

    def inward(self, name: str) -> str:
        """The tool's own name; a name that was not sent stays as it is."""
        return self._inward.get(name, name)


def _fitted(name: str, rule: NameRule, taken: set[str]) -> str:
    plain = re.sub(f"[^{rule.characters}]", "_", name)
    if len(plain) <= rule.longest and plain not in taken:
        return plain
    suffix = f"_{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    return plain[: rule.longest - len(suffix)] + suffix


def names_of(request: Request, rule: NameRule) -> ToolNames:
    """The names of all tools in a request: those that are offered, and those that were called before."""
    called = (call.name for message in request.messages for call in message.calls)
    return ToolNames((*(tool.name for tool in request.tools), *called), rule)


def rename_tools(request: Request, names: ToolNames) -> Request:
    """The request with the names that are sent."""
    if not names.change_any:
        return request
    choice = request.choice
    return replace(
        request,
        tools=tuple(replace(tool, name=names.outward(tool.name)) for tool in request.tools),
        choice=replace(choice, names=tuple(names.outward(name) for name in choice.names)),
        messages=tuple(_renamed(message, names) for message in request.messages),
    )


def _renamed(message: Message, names: ToolNames) -> Message:
    calls = tuple(replace(call, name=names.outward(call.name)) for call in message.calls)
    return replace(message, calls=calls, name=names.outward(message.name) if message.role == "tool" else message.name)


@dataclass(frozen=True, slots=True)
class IdRule:
    """Which ids of calls an API takes: a pattern, and how many letters and digits a new one has."""

    pattern: str = ".+"
    length: int = 24

    def fitted(self, id: str) -> str:
        """The id, or one that is taken: always the same for the same id."""
        if re.fullmatch(self.pattern, id):
            return id
        return sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[: self.length]


def fit_ids(request: Request, rule: IdRule) -> Request:
    """The request with ids of calls that are taken."""
    if all(rule.fitted(id) == id for message in request.messages for id in _ids(message)):
        return request

    def fitted(call: Call) -> Call:
        return replace(call, id=rule.fitted(call.id))

    messages = (
        replace(message, calls=tuple(map(fitted, message.calls)), call_id=rule.fitted(message.call_id) if message.call_id else "")
        for message in request.messages
    )
    return replace(request, messages=tuple(messages))


def _ids(message: Message) -> Iterable[str]:
    return (*(call.id for call in message.calls), *([message.call_id] if message.call_id else ()))
