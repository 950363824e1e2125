"""Values of Python types from JSON that is not complete yet: what has come is in them, and None in the place of the rest."""

import re
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

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

    arguments = get_args(kind)
    if isinstance(value, list):
        inner = arguments[0] if arguments else Any
        return [_fill(inner, item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    document = cast("dict[str, Any]", value)
    if NoneType in arguments and len(arguments) == 2:  # an optional one
        return _fill(next(argument for argument in arguments if argument is not NoneType), document)
    if get_origin(kind) is dict:
        return {name: _fill(arguments[1], item) for name, item in document.items()}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        by_name = {name: (field.annotation, document.get(field.alias or name)) for name, field in kind.model_fields.items()}
        return kind.model_construct(**{name: _fill(inner, item) for name, (inner, item) in by_name.items()})
    if isinstance(kind, type) and is_dataclass(kind):
        hints, instance = get_type_hints(kind), object.__new__(kind)
        for declared in fields(kind):
            object.__setattr__(instance, declared.name, _fill(hints[declared.name], document.get(declared.name)))
        return instance
    return document
