"""A function's signature: as JSON Schema for the model, and as Python values for the call."""

import inspect
import json
import typing
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from callsmith.core.errors import UsageError
from callsmith.core.schema import Complaint, drop_titles, pointer
from callsmith.core.values import Json, Schema

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


class BoundArguments(NamedTuple):
    """Arguments converted to Python values, ready for the call."""

    positional: tuple[Any, ...]
    named: dict[str, Any]


class Signature:
    """The parameters of a function. Those annotated with `injected` are filled in by the runtime and left out of the schema."""

    def __init__(
        self, function: Callable[..., Any], *, descriptions: Mapping[str, str] | None = None, injected: type | None = None
    ) -> None:
        from pydantic import ValidationError

        self._injected: set[str] = set()
        self._positional: list[str] = []
        self._fields: dict[str, str] = {}  # pydantic field name → parameter name: parameters may be called `schema` or `_x`
        self._model = self._model_of(function, descriptions or {}, injected)
        self._validate: Callable[[object], BaseModel] = self._model.__pydantic_validator__.validate_python
        self._validate_json: Callable[[str], BaseModel] = self._model.__pydantic_validator__.validate_json
        self._mismatch = ValidationError  # pydantic is loaded when the first signature is read
        self.schema: Schema = _schema_of(self._model, function)

    def bind(self, arguments: Mapping[str, Json], injected: Any = None) -> BoundArguments | list[Complaint]:
        """Convert the arguments to the annotated types, or list what is wrong with them."""
        try:
            bound = self._validate(dict(arguments))
        except self._mismatch as error:
            bound = self._bind_as_json(arguments, error)
            if isinstance(bound, list):
                return bound
        values = bound.__dict__
        keywords = {name: values[field] for field, name in self._fields.items()}
        if extra := bound.__pydantic_extra__:
            keywords |= extra
        for name in self._injected:
            keywords[name] = injected
        return BoundArguments(tuple([keywords.pop(name) for name in self._positional]) if self._positional else (), keywords)

    def _bind_as_json(self, arguments: Mapping[str, Json], mismatch: "ValidationError") -> "BaseModel | list[Complaint]":
        """Strict types take from JSON what they take from nothing else: a date, a set, a member of an enum."""
        try:
            return self._validate_json(json.dumps(dict(arguments), default=dict))
        except self._mismatch as error:
            mismatch = min(mismatch, error, key=lambda found: found.error_count())
        except (TypeError, ValueError, RecursionError):  # no JSON
            pass
        complaints = mismatch.errors(include_url=False, include_input=False)
        return [Complaint(pointer(item["loc"]), item["msg"]) for item in complaints]

    def _model_of(
        self, function: Callable[..., Any], descriptions: Mapping[str, str], injected: type | None
    ) -> "type[BaseModel]":
        from pydantic import ConfigDict, create_model
        from pydantic.errors import PydanticUserError

        hints, open_ended = _hints(function), False
        fields: dict[str, Any] = {}
        for name, parameter in _parameters(function).items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise UsageError(f"{_name(function)}: *{name} has no name to call it by; a tool takes named parameters")
            if parameter.kind is parameter.VAR_KEYWORD:
                open_ended = True
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self._positional.append(name)
            hint = hints.get(name, Any)
            if injected is not None and _is_injected(hint, injected):
                self._injected.add(name)
                continue
            field = f"p{len(fields)}"
            self._fields[field] = name
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[field] = (_annotate(hint, name, descriptions.get(name)), default)
        config = ConfigDict(extra="allow" if open_ended else "forbid")
        try:
            return create_model("Arguments", __config__=config, **fields)
        except PydanticUserError as error:
            raise UsageError(f"{_name(function)}: {str(error).splitlines()[0]}") from error


def _schema_of(model: "type[BaseModel]", function: Callable[..., Any]) -> dict[str, Json]:
    from pydantic.errors import PydanticInvalidForJsonSchema
    from pydantic.json_schema import PydanticJsonSchemaWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)  # a default that is not JSON is left out
        try:
            return drop_titles(model.model_json_schema())
        except PydanticInvalidForJsonSchema as error:
            raise UsageError(f"{_name(function)}: {str(error).splitlines()[0]}") from error


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise UsageError(f"{_name(function)} has no signature to read: {error}") from error


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target: Any = function
    while hasattr(target, "func"):  # functools.partial
        target = target.func
    if not (inspect.isroutine(target) or inspect.isclass(target)):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, SyntaxError) as error:
        raise UsageError(f"{_name(function)}: an annotation cannot be resolved: {error}") from error


def _annotate(hint: Any, name: str, description: str | None) -> Any:
    """The hint with the parameter's name and its description: a text in `Annotated`, else what the docstring says.

    A `Field(description=...)` of its own wins over both.
    """
    from pydantic import Field

    base, *metadata = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    if description := next((text for text in metadata if isinstance(text, str)), description):
        metadata.insert(0, Field(description=description))
    return Annotated[(base, *metadata, Field(alias=name))]  # pyright: ignore[reportInvalidTypeForm]


def _is_injected(hint: Any, injected: type) -> bool:
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    return hint is injected or injected in typing.get_args(hint)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))
