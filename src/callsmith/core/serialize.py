"""The serializer of everything that is stored: frozen dataclasses to plain JSON and back, by the types of their fields.

    dump(Message.user("Hi"))                            # {"role": "user", "content": "Hi"}
    load(Message, {"role": "user", "content": "Hi"})    # Message("user", "Hi")

    codec = DocumentCodec(Saved, version=1)             # a document that is stored on its own has a version
    codec.read(codec.write(saved)) == saved

Fields that have their default value are left out. Reading is strict: an unknown field, a wrong type or an unknown version is a
`UsageError` that names the place (`messages.3.calls.0.name: …`). Field types may be str, int, float, bool, Any (any JSON value),
Literal, tuple[X, ...], frozenset[str], Mapping[str, X], X | None, other dataclasses, and unions of dataclasses that have a tag.
JSON values pass through untouched: NaN, half a surrogate pair and integers of any size come back as they were. That is why this
is not pydantic, which turns NaN into null and merges keys that are not valid UTF-8.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Generic, Literal, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from callsmith.core.approval import Approved, Decision, Denied
from callsmith.core.errors import UnknownName, UsageError, shorten
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.types.tables import kind
from callsmith.core.values import Json, Message

T = TypeVar("T")

# Classes of a union are distinguished by a tag: the name of a field that the document has in addition, and its value.
_TAGS: Mapping[type, tuple[str, str]] = {Approved: ("decision", "approved"), Denied: ("decision", "denied")}


@dataclass(frozen=True, slots=True)
class Saved:
    """A conversation between two steps.

    `pending` are the calls that wait for a person's decision and `decisions` the decisions made, by call id, on calls that have
    not run yet. `started` are calls that must not run twice and had begun when this was written; `checkpoints` are what calls
    have noted, by call id, to be taken up where they stopped.
    """

    id: str
    messages: tuple[Message, ...] = ()
    subject: str = ""
    instructions: str = ""
    pending: tuple[ConfirmationNeeded, ...] = ()
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    granted: frozenset[str] = frozenset()
    started: frozenset[str] = frozenset()
    checkpoints: Mapping[str, str] = field(default_factory=dict[str, str])


def dump(value: object) -> dict[str, Json]:
    """The JSON object of a dataclass value."""
    try:
        return _codec(type(value), False).write(value)
    except _Mistake as mistake:
        raise mistake.as_error() from mistake.__cause__


def load(kind: type[T], document: Json, place: str = "", *, ignore_unknown: bool = False) -> T:
    """The value of a dataclass that `dump` has written. `place` is where the document is, for error messages.

    `ignore_unknown` passes over fields that the class does not have (those of later versions).
    """
    try:
        return _codec(kind, ignore_unknown).read(document)
    except _Mistake as mistake:
        raise mistake.as_error(place) from mistake.__cause__


@dataclass(frozen=True, slots=True)
class DocumentCodec(Generic[T]):
    """Writes and reads the documents of one class, each with the version of its layout.

    `upgrades` turn a document of an older version, by that version, into one of the next; 0 is a document without a version.
    `outside` are fields that are stored beside the document, its id for instance: `read` is given them again.
    """

    kind: type[T]
    version: int = 1
    upgrades: Mapping[int, Callable[[Json], Json]] = field(default_factory=dict[int, Callable[[Json], Json]])
    outside: frozenset[str] = frozenset()

    def write(self, value: T) -> dict[str, Json]:
        """The document of a value."""
        inside = {name: member for name, member in dump(value).items() if name not in self.outside}
        return {"version": self.version, **inside}

    def read(self, document: Json, **outside: Json) -> T:
        """The value of a document, with the fields that are stored beside it."""
        members = self._upgrade(document)
        for name in outside.keys() & members.keys():
            raise UsageError(f"{name}: is stored beside the document, not in it", field=name)
        return load(self.kind, {**members, **outside})

    def _upgrade(self, document: Json) -> dict[str, Json]:
        """The fields of a document as this version has them."""
        while type(version := _version(document)) is not int or version != self.version:
            upgrade = self.upgrades.get(version) if type(version) is int else None
            if upgrade is None and not isinstance(document, dict):
                raise _mismatch("an object", document).as_error()
            if upgrade is None:
                raise _Mistake(f"{version!r} is not known here; this is written as version {self.version}", "version").as_error()
            try:
                document = upgrade(document)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise _Mistake(f"not a document of version {version}: {error!r}").as_error() from error
        return {name: member for name, member in document.items() if name != "version"}


def _version(document: Json) -> Json:
    return cast("dict[str, Json]", document).get("version", 0) if isinstance(document, dict) else 0


_CONVERSATION = DocumentCodec(Saved)


def write_conversation(saved: Saved) -> dict[str, Json]:
    """The document of a conversation."""
    return _CONVERSATION.write(saved)


def read_conversation(document: Json) -> Saved:
    """The conversation of a document."""
    return _CONVERSATION.read(document)


class _Mistake(Exception):
    """What is wrong with a value; on its way out the place is put together from its parts."""

    def __init__(self, why: str, *place: str) -> None:
        super().__init__(why)
        self.place = list(place)

    def as_error(self, before: str = "") -> UsageError:
        place = ".".join([before, *self.place] if before else self.place)
        return UsageError(f"{place or 'the document'}: {self}", field=place or None)


@dataclass(frozen=True, slots=True)
class _Codec:
    """How values of one type are written and read."""

    write: Callable[[Any], Json]
    read: Callable[[Json], Any]


def _mismatch(expected: str, value: Json) -> _Mistake:
    return _Mistake(f"expected {expected}, got {kind(value)}")


def _pass_through(value: Any) -> Any:
    return value


@cache
def _codec(hint: Any, lenient: bool) -> _Codec:
    """The codec of a type. `lenient`: unknown fields of dataclasses are passed over."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if isinstance(hint, type) and is_dataclass(hint):
        return _record(hint, lenient)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _literal(inner)
    if origin is tuple and len({*inner} - {...}) == 1:  # of any number, or of a fixed one
        return _array(_codec(inner[0], lenient), tuple)
    if origin is frozenset:
        return _array(_codec(inner[0], lenient), frozenset)
    if origin is Mapping and inner[0] is str:
        return _mapping(_codec(inner[1], lenient))
    if origin in (Union, UnionType):
        return _union([item for item in inner if item is not NoneType], NoneType in inner, lenient)
    if origin is Callable:
        return _Codec(_refuse_function, _refuse_function)
    raise TypeError(f"values of the type {hint} cannot be stored")


def _of_type(kinds: tuple[type, ...], expected: str) -> _Codec:
    def read(value: Json) -> Json:
        if type(value) not in kinds:  # no isinstance: true and false are no numbers
            raise _mismatch(expected, value)
        return value

    return _Codec(_pass_through, read)


_SIMPLE: Mapping[Any, _Codec] = {
    Any: _Codec(_pass_through, _pass_through),
    str: _of_type((str,), "a string"),
    bool: _of_type((bool,), "a boolean"),
    int: _of_type((int,), "an integer"),
    float: _of_type((int, float), "a number"),
}


def _literal(values: tuple[Any, ...]) -> _Codec:
    def read(value: Json) -> Json:
        if value not in values:
            raise _Mistake(f"expected one of {', '.join(values)}, got {shorten(repr(value))}")
        return value

    return _Codec(_pass_through, read)


def _refuse_function(value: Any) -> NoReturn:
    raise _Mistake("a function cannot be stored")


def _array(codec: _Codec, kind: type[tuple[Any, ...]] | type[frozenset[Any]]) -> _Codec:
    """Tuples in their order; sets sorted, so that equal values give equal documents."""

    def each(convert: Callable[[Any], Any], values: Any) -> list[Any]:
        converted = list[Any]()
        try:
            for value in values:
                converted.append(convert(value))
        except _Mistake as mistake:
            mistake.place.insert(0, str(len(converted)))
            raise
        return converted

    def write(values: Any) -> Json:
        return each(codec.write, values if kind is tuple else sorted(values))

    def read(value: Json) -> Any:
        if not isinstance(value, list | tuple):
            raise _mismatch("an array", value)
        return kind(each(codec.read, value))

    return _Codec(write, read)


def _mapping(codec: _Codec) -> _Codec:
    def each(convert: Callable[[Any], Any], values: Mapping[str, Any]) -> dict[str, Any]:
        if convert is _pass_through:
            return dict(values)
        converted, name = dict[str, Any](), ""
        try:
            for name, item in values.items():
                converted[name] = convert(item)
        except _Mistake as mistake:
            mistake.place.insert(0, name)
            raise
        return converted

    return _Codec(lambda values: each(codec.write, values), lambda value: each(codec.read, _object(value)))


def _object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _mismatch("an object", value)
    return cast("dict[str, Json]", value)


def _union(kinds: list[Any], optional: bool, lenient: bool) -> _Codec:
    """One type or null, some literals, or dataclasses that are distinguished by their tags."""
    if len(kinds) == 1:
        codec = _codec(kinds[0], lenient)
    elif all(get_origin(item) is Literal for item in kinds):
        codec = _literal(tuple(value for item in kinds for value in get_args(item)))
    else:
        codec = _tag({_TAGS[item][1]: _codec(item, lenient) for item in kinds}, *{_TAGS[item][0] for item in kinds})
    if not optional:
        return codec
    return _Codec(
        lambda value: None if value is None else codec.write(value),
        lambda value: None if value is None else codec.read(value),
    )


def _tag(codecs: Mapping[str, _Codec], tag: str) -> _Codec:
    def write(value: Any) -> Json:
        return codecs[_TAGS[type(value)][1]].write(value)

    def read(value: Json) -> Any:
        name = _object(value).get(tag)
        if not isinstance(name, str) or name not in codecs:
            raise _Mistake(f"expected one of {', '.join(codecs)}, got {name!r}", tag)
        return codecs[name].read(value)

    return _Codec(write, read)


def _record(kind: type, lenient: bool) -> _Codec:
    """A dataclass, field by field. Their codecs are made for the first value: a class may have fields of its own type."""
    tag = dict([_TAGS[kind]] if kind in _TAGS else [])

    @cache
    def parts() -> tuple[list[tuple[str, Any, Callable[[Any], Json]]], dict[str, Callable[[Json], Any]], list[str]]:
        hints = get_type_hints(kind)
        defaults = {
            item.name: item.default if item.default_factory is MISSING else item.default_factory() for item in fields(kind)
        }
        codecs = {name: _codec(hints[name], lenient) for name in defaults}
        return (
            [(name, defaults[name], codec.write) for name, codec in codecs.items()],
            {name: codec.read for name, codec in codecs.items()} | dict.fromkeys(tag, _pass_through),
            [name for name, default in defaults.items() if default is MISSING],
        )

    def write(value: Any) -> Json:
        document, name = dict[str, Json](tag), ""
        try:
            for name, default, convert in parts()[0]:
                if (member := getattr(value, name)) != default:
                    document[name] = member if convert is _pass_through else convert(member)
        except _Mistake as mistake:
            mistake.place.insert(0, name)
            raise
        return document

    def read(value: Json) -> Any:
        _, readers, required = parts()
        document, values, name = _object(value), dict[str, Any](), ""
        if not lenient and (unknown := document.keys() - readers.keys()):
            raise _Mistake(str(UnknownName("key", min(unknown), readers)), min(unknown))
        try:
            for name, member in document.items():
                if name in readers:
                    values[name] = readers[name](member)
        except _Mistake as mistake:
            mistake.place.insert(0, name)
            raise
        return _built(kind, values, required, tag)

    return _Codec(write, read)


def _built(kind: type, values: dict[str, Any], required: list[str], tag: Mapping[str, str]) -> Any:
    for name in required:
        if name not in values:
            raise _Mistake("is missing", name)
    for name, expected in tag.items():
        if values.pop(name, None) != expected:
            raise _Mistake(f"expected {expected}", name)
    try:
        return kind(**values)
    except UsageError as error:
        raise _Mistake(str(error)) from error
