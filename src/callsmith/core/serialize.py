"""Values as plain JSON documents, to be stored and read back: a saved conversation, and everything it is made of.

    document = write_conversation(saved)     # {"version": 1, "id": "…", "messages": [{"role": "user", "content": "Hi"}], …}
    saved == read_conversation(document)

Fields that have their standard value are left out. Reading is strict: an unknown field, a wrong type or another version is a
`UsageError` that names the place (`messages.3.calls.0.name: …`). The parts have codecs of their own: `MESSAGE.write(message)`.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Generic, TypeVar, cast

from callsmith.core.approval import Approved, Decision, Denied
from callsmith.core.errors import UsageError
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.values import Call, Json, Message, Result, Tool, Usage

VERSION = 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Saved:
    """A conversation between two steps.

    `pending` are the calls that wait for a person's word and `decisions` the words given, by call id, for calls that have not run
    yet. `started` are calls that must not run twice and had begun when this was written.
    """

    id: str
    messages: tuple[Message, ...] = ()
    subject: str = ""
    instructions: str = ""
    pending: tuple[ConfirmationNeeded, ...] = ()
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    granted: frozenset[str] = frozenset()
    started: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """A value to JSON and back; `read` is given the place, for its complaints."""

    write: Callable[[T], Json]
    read: Callable[[Json, str], T]


def _wrong(place: str, why: str) -> UsageError:
    return UsageError(f"{place or 'the document'}: {why}", field=place or None)


def _of_type(kind: type[T], words: str) -> Codec[T]:
    def read(value: Json, place: str) -> T:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _wrong(place, f"expected {words}")
        return value

    return Codec(lambda value: value, read)


def _one_of(*words: str) -> Codec[Any]:
    def read(value: Json, place: str) -> str:
        if value not in words:
            raise _wrong(place, f"expected one of {', '.join(words)}")
        return value

    return Codec(lambda value: value, read)


def _optional(codec: Codec[T]) -> Codec[T | None]:
    return Codec(
        lambda value: None if value is None else codec.write(value),
        lambda value, place: None if value is None else codec.read(value, place),
    )


def _many(codec: Codec[T]) -> Codec[tuple[T, ...]]:
    def read(value: Json, place: str) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise _wrong(place, "expected an array")
        return tuple(codec.read(one, f"{place}.{index}") for index, one in enumerate(cast("list[Json]", value)))

    return Codec(lambda values: [codec.write(one) for one in values], read)


def _set(codec: Codec[str]) -> Codec[frozenset[str]]:
    listed = _many(codec)
    return Codec(lambda values: listed.write(tuple(sorted(values))), lambda value, place: frozenset(listed.read(value, place)))


def _by_name(codec: Codec[T]) -> Codec[Mapping[str, T]]:
    return Codec(
        lambda values: {name: codec.write(one) for name, one in values.items()},
        lambda value, place: {name: codec.read(one, f"{place}.{name}") for name, one in _object(value, place).items()},
    )


def _object(value: Json, place: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _wrong(place, "expected an object")
    return cast("dict[str, Json]", value)


def _standard(one: Any) -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()


def _record(made: type[T], **codecs: Codec[Any]) -> Codec[T]:
    """A dataclass, field by field."""
    standard = {one.name: _standard(one) for one in fields(cast(Any, made))}

    def write(value: T) -> Json:
        present = {name: getattr(value, name) for name in codecs}
        return {name: codecs[name].write(one) for name, one in present.items() if one != standard[name]}

    def read(value: Json, place: str) -> T:
        given = _object(value, place)
        inside = f"{place}." if place else ""
        for name in given:
            if name not in codecs:
                raise _wrong(inside + name, "no such field is known")
        for name in codecs:
            if name not in given and standard[name] is MISSING:
                raise _wrong(inside + name, "is missing")
        try:
            return made(**{name: codecs[name].read(one, inside + name) for name, one in given.items()})
        except UsageError as error:
            raise error if error.field else _wrong(place, str(error)) from error

    return Codec(write, read)


_TEXT = _of_type(str, "a string")
_FLAG = _of_type(bool, "true or false")
_COUNT = _of_type(int, "an integer")
_NUMBER: Codec[Any] = _of_type(cast("type[float]", (int, float)), "a number")
_ANY: Codec[Json] = Codec(lambda value: value, lambda value, _: value)
_OBJECT: Codec[Mapping[str, Json]] = Codec(dict, _object)

CALL = _record(Call, name=_TEXT, arguments=_OBJECT, id=_TEXT, text=_TEXT)
RESULT = _record(Result, call_id=_TEXT, name=_TEXT, content=_ANY, ok=_FLAG, code=_TEXT)
MESSAGE = _record(
    Message,
    role=_one_of("system", "user", "assistant", "tool"),
    content=_TEXT,
    reasoning=_TEXT,
    calls=_many(CALL),
    call_id=_TEXT,
    name=_TEXT,
)
TOOL = _record(
    Tool,
    name=_TEXT,
    description=_TEXT,
    parameters=_OBJECT,
    output=_optional(_OBJECT),
    strict=_FLAG,
    side_effects=_FLAG,
    idempotent=_FLAG,
    timeout=_optional(_NUMBER),
    source=_TEXT,
    original=_TEXT,
)
USAGE = _record(Usage, prompt=_COUNT, completion=_COUNT, cached=_COUNT, reasoning=_COUNT)
CONFIRMATION = _record(ConfirmationNeeded, id=_TEXT, call=CALL, reason=_TEXT, expires=_optional(_NUMBER))
_APPROVED = _record(Approved, arguments=_optional(_OBJECT), remember=_FLAG)
_DENIED = _record(Denied, message=_TEXT)


def _write_decision(decision: Decision) -> Json:
    """Which of the two it is stands in a field of its own: an approval without conditions has no other."""
    if isinstance(decision, Approved):
        return {"decision": "approved", **_APPROVED.write(decision)}
    return {"decision": "denied", **_DENIED.write(decision)}


def _read_decision(value: Json, place: str) -> Decision:
    given = dict(_object(value, place))
    match given.pop("decision", None):
        case "approved":
            return _APPROVED.read(given, place)
        case "denied":
            return _DENIED.read(given, place)
        case _:
            raise _wrong(f"{place}.decision", "expected one of approved, denied")


DECISION: Codec[Decision] = Codec(_write_decision, _read_decision)
_SAVED = _record(
    Saved,
    id=_TEXT,
    messages=_many(MESSAGE),
    subject=_TEXT,
    instructions=_TEXT,
    pending=_many(CONFIRMATION),
    decisions=_by_name(DECISION),
    granted=_set(_TEXT),
    started=_set(_TEXT),
)


def write_conversation(saved: Saved) -> dict[str, Json]:
    """The document of a conversation, with its version."""
    return {"version": VERSION, **_SAVED.write(saved)}


def read_conversation(document: Json) -> Saved:
    """The conversation a document holds."""
    given = dict(_object(document, ""))
    version = given.pop("version", None)
    if version != VERSION:
        raise _wrong("version", f"{version!r} is not known here; this is written as version {VERSION}")
    return _SAVED.read(given, "")
