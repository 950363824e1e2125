"""Values of Python types from JSON that is not complete yet: what has come is in them, and None in the place of the rest."""

import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from itertools import chain, repeat
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

_OPEN_NUMBER = re.compile(r"(?<![^\s:\[,])-?[0-9][-+0-9.eE]*$")  # digits may follow, which make another number of it


def parse_partial(kind: type[T], text: str) -> T | None:
    """What the beginning of a JSON text says of a value, or None as long as it says nothing.

    Nothing is validated, and what has no value of its own kind in JSON stays as JSON has it: a date is a string here.
    """
    from pydantic_core import from_json

    try:
        value = from_json(_OPEN_NUMBER.sub("", text), allow_partial="trailing-strings")
    except ValueError:  # no JSON, or none yet
        return None
    return _fill(kind, value)


def _fill(kind: Any, value: Any) -> Any:
    """The JSON value as one of this kind; unvalidated."""
    from pydantic import BaseModel

    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _fill(arguments[0], value)
    if origin in (Union, UnionType):
        return _fill(_member(arguments, value), value)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if origin is not tuple:
            return [_fill(arguments[0] if arguments else Any, item) for item in items]
        kinds = repeat(arguments[0]) if arguments[-1:] == (Ellipsis,) else chain(arguments, repeat(Any))
        return tuple(map(_fill, kinds, items))
    if not isinstance(value, dict):
        return value
    document = cast("dict[str, Any]", value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {name: _fill(arguments[1], item) for name, item in document.items()}
    declared = _fields_of(kind)
    if declared is None:
        return document
    values = {attribute: _fill(inner, document.get(name)) for name, (attribute, inner) in declared.items()}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_construct(**values)
    instance: Any = cast(Any, object.__new__)(origin or kind)
    for attribute, filled in values.items():
        object.__setattr__(instance, attribute, filled)
    return instance


def _fields_of(kind: Any) -> dict[str, tuple[str, Any]] | None:
    """The fields of a model or a dataclass by their names in JSON: attribute and kind. None for other kinds."""
    from pydantic import BaseModel

    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {field.alias or name: (name, field.annotation) for name, field in kind.model_fields.items()}
    own = cast(Any, get_origin(kind) or kind)
    if not is_dataclass(own) or not inspect.isclass(own):
        return None
    hints, given = get_type_hints(own), dict(zip(getattr(own, "__parameters__", ()), get_args(kind), strict=False))
    return {declared.name: (declared.name, given.get(hints[declared.name], hints[declared.name])) for declared in fields(own)}


def _member(kinds: tuple[Any, ...], value: Any) -> Any:
    """The member of a union that a value may be of, as far as its names and constants tell already."""
    for kind in kinds:
        plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        origin, declared = get_origin(plain), _fields_of(plain)
        if (
            isinstance(value, list)
            and isinstance(origin, type)
            and issubclass(origin, Collection)
            and not issubclass(origin, Mapping)
        ):
            return plain
        if isinstance(value, dict) and isinstance(origin, type) and issubclass(origin, Mapping):
            return plain
        if isinstance(value, dict) and declared is not None:
            document = cast("dict[str, Any]", value)
            if all(name in declared and _may_become(declared[name][1], item) for name, item in document.items()):
                return plain
    return Any


def _may_become(kind: Any, value: Any) -> bool:
    """Whether a value, to which more may be added, can be one of this kind: told for constants only."""
    if get_origin(kind) is not Literal:
        return True
    return any(known == value or (isinstance(value, str) and str(known).startswith(value)) for known in get_args(kind))
