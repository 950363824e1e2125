"""Declared fields of requests: a reader gets a field's value from its declaration, and `/openapi.json` its schema.

    class ChatFields(RequestFields, component="ChatRequest"):
        n = integer("How many answers.", least=1, most=16)
        stop = texts("Texts at which the answer ends.")

    ChatFields.of({"n": 2}, "").n          # 2; None if it is absent or null; a UsageError names the field
    ChatFields.schema()                    # {"type": "object", "properties": {"n": {"type": ["integer", "null"], …}, …}}

The name of the attribute is that of the field, unless another one is given. A type is written as in `notation.py`.
"""

import builtins
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

from callsmith.core.capability.origin import Origin
from callsmith.core.values import Json, Output
from callsmith.wire.declare.notation import Schema, describe, nullable, parse_type
from callsmith.wire.fields import Fields

T = TypeVar("T")


class Field(property, Generic[T]):
    """A field that may be absent. `read` gives its value, of the object that has the field and its name."""

    is_required = False

    def __init__(
        self,
        type: "str | builtins.type[RequestFields]",
        read: Callable[[Any, str], T | None],
        about: str = "",
        *,
        name: str = "",
        is_array: bool = False,
        **keywords: Json,
    ) -> None:
        super().__init__(self.read_from)
        self.name = name
        self._type = type
        self._read = read
        self._about = about
        self._is_array = is_array
        self._keywords = keywords

    def __set_name__(self, owner: object, name: str) -> None:
        self.name = self.name or name

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: object) -> Self: ...
        @overload
        def __get__(self, instance: Fields, owner: object) -> T | None: ...
        def __get__(  # pyright: ignore[reportIncompatibleMethodOverride]  (a property of any class; this one is of Fields)
            self, instance: Fields | None, owner: object
        ) -> Self | T | None: ...

    def read_from(self, body: Fields) -> T | None:
        """The value that the field has in an object."""
        return None if body.data.get(self.name) is None else self._read(body, self.name)

    def schema(self) -> Schema:
        plain = parse_type(self._type) if isinstance(self._type, str) else self._type.reference()
        schema = {**({"type": "array", "items": plain} if self._is_array else plain), **self._keywords}
        return describe(schema if self.is_required else nullable(schema), self._about)


class RequiredField(Field[T]):
    """A field that has to be there: `read` complains if it is not."""

    is_required = True

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: object) -> Self: ...
        @overload
        def __get__(self, instance: Fields, owner: object) -> T: ...
        def __get__(self, instance: Fields | None, owner: object) -> Self | T: ...

    def read_from(self, body: Fields) -> T | None:
        return self._read(body, self.name)


class RequestFields(Fields):
    """A JSON object with declared fields. `component`: the name of its schema, where others refer to it by one.

    `refused` are fields that are not supported, each with the values that ask for nothing; `ignored` are fields that change
    nothing, and why that does no harm. Those of the classes it is derived from are added.
    """

    component: ClassVar = ""
    declared: ClassVar[Mapping[str, Field[Any]]] = {}
    refused: ClassVar[Mapping[str, tuple[Json, ...]]] = {}
    ignored: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, component: str = "") -> None:
        attributes: dict[str, Any] = {}
        for base in cls.__mro__:
            attributes = {**attributes, **{name: value for name, value in vars(base).items() if name not in attributes}}
        declared: list[Field[Any]] = [value for value in attributes.values() if isinstance(value, Field)]
        cls.component = component
        cls.declared = {field.name: field for field in declared}
        cls.refused = {name: neutral for base in cls.__mro__ for name, neutral in getattr(base, "refused", {}).items()}
        cls.ignored = {name: why for base in cls.__mro__ for name, why in getattr(base, "ignored", {}).items()}

    @classmethod
    def schema(cls) -> Schema:
        """The schema of such an object; its description is the first line of the docstring."""
        required = [field.name for field in cls.declared.values() if field.is_required]
        refused: dict[str, Schema] = {
            name: describe({"enum": [*neutral, None]}, "Not supported: refused unless it asks for nothing.")
            for name, neutral in cls.refused.items()
        }
        ignored = {name: describe({}, f"Ignored: {why}.") for name, why in cls.ignored.items()}
        properties = {name: field.schema() for name, field in cls.declared.items()} | refused | ignored
        schema: Schema = {"type": "object", "properties": properties, **({"required": required} if required else {})}
        return describe(schema, (cls.__doc__ or "").partition("\n")[0])

    @classmethod
    def reference(cls) -> Schema:
        """What stands for the schema in another one."""
        return parse_type(cls.component) if cls.component else cls.schema()

    def refuse_unsupported(self) -> None:
        """Complain about the first field that asks for something that is not supported."""
        for name, value in self.data.items():
            if name in self.refused and value is not None and value not in self.refused[name]:
                raise self.error(name, f"{json.dumps(value)[:80]} is not supported")


R = TypeVar("R", bound=RequestFields)


def text(about: str = "", type: str = "string") -> Field[str]:
    return Field(type, Fields.text, about)


def required_text(about: str = "", type: str = "string") -> RequiredField[str]:
    return RequiredField(type, Fields.required_text, about)


def flag(about: str = "", **keywords: Json) -> Field[bool]:
    return Field("boolean", Fields.flag, about, **keywords)


def required_flag(about: str = "", why: str = "true or false") -> RequiredField[bool]:
    def read(fields: Fields, key: str) -> bool:
        flag = fields.flag(key)
        if flag is None:
            raise fields.error(key, f"is required: {why}")
        return flag

    return RequiredField("boolean", read, about)


def integer(about: str = "", *, least: int | None = None, most: int | None = None) -> Field[int]:
    return Field("integer", lambda fields, key: fields.integer(key, least, most), about, **bounds(least, most))


def number(about: str = "", *, least: float = 0, most: float | None = None) -> Field[float]:
    highest = 1e308 if most is None else most
    return Field("number", lambda fields, key: fields.number(key, highest, least=least), about, **bounds(least, most))


def words(*known: str, about: str = "") -> Field[str]:
    """One of these texts."""

    def read(fields: Fields, key: str) -> str | None:
        word = fields.text(key)
        if word not in known:
            raise fields.error(key, f"{word!r} is none of {', '.join(known)}")
        return word

    return Field("string", read, about, enum=[*known])


def texts(about: str = "") -> Field[tuple[str, ...]]:
    """An array of strings, or one string."""
    return Field("string | string[]", Fields.texts, about)


def value(type: str, about: str = "") -> Field[Json]:
    """A value of a type, as it came."""
    return Field(type, Fields.get, about)


def nested(fields: type[R], about: str = "") -> Field[R]:
    """An object with declared fields of its own."""
    return Field(fields, lambda outer, key: fields.of(outer.get(key), outer.at(key)), about)


def reuse(read: Callable[[Fields, str], T]) -> Callable[[Fields, str], T]:
    """Of an array that came before, what was read from it then."""
    return lambda fields, key: fields.get_or_parse(key, read)


def read_many(fields: type[R], outer: Fields, key: str) -> list[R]:
    """The objects of an array, as such that have these fields."""
    return [fields.of(item, f"{outer.at(key)}.{index}") for index, item in enumerate(outer.array(key) or ())]


def bounds(least: float | None, most: float | None) -> Schema:
    limits = {"minimum": least, "maximum": most}
    return {name: limit for name, limit in limits.items() if limit is not None}


class ModelFields(RequestFields):
    """Which model is asked, and how the answer comes."""

    model = text("A model, or an alias; without it the first one.")
    stream = flag("Whether the answer comes as a stream.")


class CacheFields(RequestFields):
    """With whom a cached prompt is shared."""

    cache_salt = text("What is cached of the prompt is reused only with the same one.")
    prompt_cache_key = text("Requests with the same one go to the same of several servers.")

    def read_origin(self) -> Origin:
        return Origin(cache_salt=self.cache_salt or "", affinity=self.prompt_cache_key or "")


def _read_include_usage(fields: Fields, key: str) -> bool | None:
    return fields.required_object(key).flag("include_usage")


class StreamFields(RequestFields):
    """How a stream is sent, in the older of OpenAI's dialects."""

    stream_options = Field("partial {include_usage: boolean}", _read_include_usage, "Whether the last chunk has the usage.")


class OutputField(Field[Output]):
    """A field that says what an answer must be."""


@cache
def _output_fields(fields: type[RequestFields]) -> tuple[OutputField, ...]:
    return tuple(field for field in fields.declared.values() if isinstance(field, OutputField))


def read_output(fields: RequestFields) -> Output | None:
    """The one output that a request asks for, if any."""
    first, constraint = "", None
    for field in _output_fields(type(fields)):
        output = field.read_from(fields)
        if output is None:
            continue
        if constraint is not None:
            raise fields.error(field.name, f"an answer can be constrained once, and {fields.at(first)} does so already")
        first, constraint = field.name, output
    return constraint


def as_written() -> Field[bool]:
    return flag("Whether the schema is taken at its word: objects open unless it closes them, in any order.")
