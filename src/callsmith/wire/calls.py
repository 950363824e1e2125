"""The tool calls of an answer, as every dialect writes and reads them.

`CallWriter` is what the writers of answers have in common, `CallAssembler` puts calls together that are read in pieces.
"""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from callsmith.core.events import CallArguments, CallReady, CallStarted, ModelEvent, Unreadable
from callsmith.core.types.call_ids import CallIds
from callsmith.core.values import Call, Json

CallEvent: TypeAlias = CallStarted | CallArguments | CallReady | Unreadable


def read_arguments(text: str) -> dict[str, Json] | None:
    """The object in this JSON text, or None if there is none. What a model once wrote wrongly must not stop a conversation."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is valid JSON, but no text any engine takes
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Json], value) if isinstance(value, dict) else None


def arguments_text(value: Json) -> tuple[str, bool]:
    """Arguments as JSON text, and whether they came as an object where a text is wanted."""
    if value is None or isinstance(value, str):
        return value or "", False
    return json.dumps(value, ensure_ascii=False), True


class CallWriter(ABC):
    """Writes the calls of one answer; how each step looks on the wire, a dialect says in the abstract methods.

    Each call is started once, all of its arguments are sent, and it ends once, whatever a model leaves out of its events.
    """

    def __init__(self) -> None:
        self._characters: dict[int, int] = {}  # calls that have not ended: how much of their arguments has been sent
        self._ended_calls: set[int] = set()
        self._used_ids = CallIds()

    def write_call(self, event: CallEvent) -> list[dict[str, Json]]:
        """What is sent for this event."""
        match event:
            case CallArguments(index, text):
                if not text or index not in self._characters:
                    return []
                self._characters[index] += len(text)
                return self._write_arguments(index, text)
            case CallStarted(index, name, id):
                if index in self._characters or index in self._ended_calls:
                    return []
                self._characters[index] = 0
                return self._start_call(index, name, id)
            case CallReady(index, call):
                # A model that gives calls whole sends only this event: whatever has not been sent is sent now.
                started = self.write_call(CallStarted(index, call.name, call.id))
                rest = self.write_call(CallArguments(index, call.text[self._characters.get(index, 0) :]))
                return [*started, *rest, *self._close_call(index)]
            case Unreadable(text, _, index):
                if index in self._characters:
                    return self._close_call(index, text)
                return [] if index in self._ended_calls else self._write_text(text)

    def _unique_id(self, id: str, otherwise: str) -> str:
        """The id, or the other one where it is empty or taken: clients tell the calls of an answer apart by their ids."""
        return self._used_ids.claim(id, otherwise)

    def _close_call(self, index: int, unreadable: str | None = None) -> list[dict[str, Json]]:
        if index in self._ended_calls:
            return []
        del self._characters[index]
        self._ended_calls.add(index)
        return self._end_call(index, unreadable)

    @abstractmethod
    def _start_call(self, index: int, name: str, id: str) -> list[dict[str, Json]]:
        """The beginning of a call; `index` is the model's number of it, and there may be gaps between them."""

    @abstractmethod
    def _write_arguments(self, index: int, text: str) -> list[dict[str, Json]]:
        """The next piece of a call's arguments."""

    @abstractmethod
    def _end_call(self, index: int, unreadable: str | None) -> list[dict[str, Json]]:
        """The end of a call; of one that has turned out to be none, `unreadable` is all that the model wrote."""

    @abstractmethod
    def _write_text(self, text: str) -> list[dict[str, Json]]:
        """A piece of the answer's text."""


@dataclass(slots=True)
class _Incoming:
    """A call being read. `is_incomplete`: with the pieces so far its arguments are no JSON object. `repairs`: those so far.
    `wrap_in`: what is sent is no JSON but a text, and this is the name of the argument that it becomes."""

    number: int
    name: str
    id: str
    pieces: list[str] = field(default_factory=list[str])
    is_incomplete: bool = False
    repairs: tuple[str, ...] = ()
    wrap_in: str = ""

    def whole(self, text: str) -> str:
        """The arguments, where this is all that was sent of them."""
        return json.dumps({self.wrap_in: text}, ensure_ascii=False) if self.wrap_in else text


_CLOSING = '"}'  # behind the pieces of a text that becomes an argument


def _is_null(text: str) -> bool:
    """Whether this is how some servers write that there are no arguments."""
    return text.strip() == "null"


class CallAssembler:
    """The calls of one answer being read, each under the key by which the sender tells it from the others."""

    def __init__(self) -> None:
        self._open: dict[int, _Incoming] = {}
        self.count = 0  # calls started so far

    def start(self, key: int, name: str, id: str, repairs: tuple[str, ...] = (), wrap_in: str = "") -> list[ModelEvent]:
        """A call begins. `wrap_in`: what comes of it is a text, which becomes the argument of this name."""
        call = self._open[key] = _Incoming(self.count, name, id, repairs=repairs, wrap_in=wrap_in)
        self.count += 1
        return [CallStarted(call.number, name, id), *self._add(call, call.whole("")[: -len(_CLOSING)] if wrap_in else "")]

    def is_another(self, key: int, name: str, id: str) -> bool:
        """Whether what is sent under the key of an earlier call begins another one: some servers number all alike."""
        call = self._open.get(key)
        if call is None or not name:
            return bool(name)
        if id and call.id:
            return id != call.id
        return name != call.name or read_arguments("".join(call.pieces)) is not None

    def add_repair(self, key: int, repair: str) -> None:
        """Something about this call was repaired."""
        call = self._open.get(key)
        if call is not None and repair not in call.repairs:
            call.repairs += (repair,)

    def add(self, key: int, text: str) -> list[ModelEvent]:
        """A piece of its arguments has come."""
        call = self._open.get(key)
        return [] if call is None else self._add(call, json.dumps(text, ensure_ascii=False)[1:-1] if call.wrap_in else text)

    def _add(self, call: _Incoming, text: str) -> list[ModelEvent]:
        if not text or (not call.pieces and _is_null(text)):
            return []
        call.pieces.append(text)
        call.is_incomplete = False
        return [CallArguments(call.number, text)]

    def is_bare(self, key: int) -> bool:
        """Whether nothing of the arguments of this call has come."""
        call = self._open.get(key)
        return call is not None and not call.pieces

    def end(self, key: int, whole: str = "", *, is_cut: bool = False) -> list[ModelEvent]:
        """The call has ended. `whole` is all of its arguments, where the sender repeats them or sends no pieces. `is_cut`: the
        answer had no room for more, so that what is not there may be missing."""
        call = self._open.get(key)
        if call is None:
            return []
        text = "".join(call.pieces)
        if call.wrap_in:
            rest = "" if is_cut else call.whole(whole)[len(text) :] if whole else _CLOSING
        else:
            whole = "" if _is_null(whole) else whole
            # A call without arguments may come without any piece of them.
            rest = whole[len(text) :] or ("" if text or is_cut else "{}")
        events = self._add(call, rest)
        del self._open[key]
        arguments = read_arguments(text + rest)
        if arguments is None:
            return [*events, Unreadable(text + rest, "the arguments are no JSON object", call.number)]
        return [*events, CallReady(call.number, Call(call.name, arguments, call.id, text + rest), call.repairs)]

    def end_complete(self) -> list[ModelEvent]:
        """Something else begins: those calls end whose arguments are complete, the others may go on."""
        events: list[ModelEvent] = []
        for key, call in list(self._open.items()):
            text = "" if call.is_incomplete or call.wrap_in else "".join(call.pieces)
            arguments = read_arguments(text) if text else None
            call.is_incomplete = arguments is None
            if arguments is not None:
                del self._open[key]
                events.append(CallReady(call.number, Call(call.name, arguments, call.id, text), call.repairs))
        return events

    def end_all(self, *, is_cut: bool = False) -> list[ModelEvent]:
        """The answer has ended, and with it every call. `is_cut`: there was no room for more of the last one."""
        keys = list(self._open)
        return [event for key in keys for event in self.end(key, is_cut=is_cut and key == keys[-1])]

    def cut_off(self) -> list[ModelEvent]:
        """The calls that have not ended: the answer has, in the middle of them."""
        return [Unreadable("".join(item.pieces), "the answer ended within the call", item.number) for item in self._open.values()]
