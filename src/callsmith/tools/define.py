"""Tools written by hand, where there is no Python function to read them from.

    weather = (
        define("weather")
        .description("The weather in a city.")
        .parameter("city", string(), "Which city")
        .parameter("unit", enum(["celsius", "fahrenheit"]), required=False)
        .build()
    )

The schema helpers return JSON Schema; any other schema, the name of a JSON type ("string") or a Python type can be given instead.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.schema import check_schema, schema_of
from callsmith.core.values import Json, Schema, Tool

_JSON_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")


def string(description: str = "", **keywords: Json) -> Schema:
    return _schema_of("string", description, keywords)


def integer(description: str = "", **keywords: Json) -> Schema:
    return _schema_of("integer", description, keywords)


def number(description: str = "", **keywords: Json) -> Schema:
    return _schema_of("number", description, keywords)


def boolean(description: str = "", **keywords: Json) -> Schema:
    return _schema_of("boolean", description, keywords)


def array(items: Schema, description: str = "", **keywords: Json) -> Schema:
    return _schema_of("array", description, {"items": items, **keywords})


def object_(properties: Mapping[str, Schema], description: str = "", *, required: Iterable[str] | None = None) -> Schema:
    """An object; all its properties are required unless `required` says which."""
    names = list(properties if required is None else required)
    return _schema_of("object", description, {"properties": dict(properties), "required": names})


def enum(values: Iterable[Json], description: str = "") -> Schema:
    """One of these values."""
    listed = list(values)
    keywords: dict[str, Json] = {"enum": listed}
    return _schema_of("string", description, keywords) if all(isinstance(choice, str) for choice in listed) else keywords


def _schema_of(kind: str, description: str, keywords: Mapping[str, Json]) -> Schema:
    return {"type": kind, **({"description": description} if description else {}), **keywords}


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool that is being defined. Every method returns a new definition; `build` returns the tool."""

    name: str
    summary: str = ""
    properties: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    required_names: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def description(self, text: str) -> "Definition":
        return replace(self, summary=text)

    def parameter(
        self, name: str, schema: Schema | str | type | Any = str, description: str = "", required: bool = True
    ) -> "Definition":
        """Add a parameter: a JSON Schema, the name of a JSON type or a Python type, and what it means."""
        if name in self.properties:
            raise UsageError(f"tool {self.name!r} has two parameters {name!r}")
        if isinstance(schema, str):
            if schema not in _JSON_TYPES:
                raise UnknownName("type of JSON", schema, _JSON_TYPES, field=name)
            schema = {"type": schema}
        shape: dict[str, Json] = dict(cast(Schema, schema)) if isinstance(schema, Mapping) else schema_of(schema)
        if description:
            shape["description"] = description
        needed = (*self.required_names, name) if required else self.required_names
        return replace(self, properties={**self.properties, name: shape}, required_names=needed)

    param = parameter

    def required(self, names: Iterable[str]) -> "Definition":
        """Exactly these parameters are required."""
        wanted = tuple(names)
        unknown = [name for name in wanted if name not in self.properties]
        if unknown:
            raise UsageError(f"tool {self.name!r} requires {unknown[0]!r}, which is not among its parameters")
        return replace(self, required_names=wanted)

    def option(self, **options: Any) -> "Definition":
        """Set further fields of the Tool: `side_effects=True`, `timeout=5`, …"""
        known = [field.name for field in fields(Tool)]
        for name in options:
            if name not in known:
                raise UnknownName("option of a tool", name, known, field=name)
        return replace(self, options={**self.options, **options})

    def build(self) -> Tool:
        properties = {name: dict(schema) for name, schema in self.properties.items()}
        parameters: dict[str, Json] = {"type": "object", "properties": properties}
        if self.required_names:
            parameters["required"] = list(self.required_names)
        definitions: dict[str, Json] = {}
        for name, schema in properties.items():  # a type's own definitions are referred to from the root: "#/$defs/…"
            own = cast(dict[str, Json], schema.pop("$defs", {}))
            others = {each: f"{each}_of_{name}" for each in own if definitions.get(each, own[each]) != own[each]}
            properties[name] = _rename_definitions(schema, others)
            definitions |= {others.get(each, each): _rename_definitions(inner, others) for each, inner in own.items()}
        if definitions:
            parameters["$defs"] = definitions
        check_schema(parameters, f"{self.name}.parameters")
        return Tool(self.name, self.summary, parameters, **self.options)


def _rename_definitions(schema: Any, names: Mapping[str, str]) -> Any:
    """The schema, with its references to definitions by other names."""
    if isinstance(schema, list):
        return [_rename_definitions(inner, names) for inner in cast(list[Any], schema)]
    if not isinstance(schema, dict) or not names:
        return cast(Any, schema)
    renamed = {key: _rename_definitions(inner, names) for key, inner in cast(dict[str, Any], schema).items()}
    reference = renamed.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        _, _, name, *inside = reference.split("/")
        renamed["$ref"] = "/".join(("#", "$defs", names.get(name, name), *inside))
    return renamed


def define(name: str, description: str = "") -> Definition:
    """Start the definition of a tool."""
    return Definition(Tool(name).name, description)
