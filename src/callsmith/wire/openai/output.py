"""What an answer must be, in the spellings of chat completions: OpenAI's `response_format` and what other servers added to it.

    {"response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": {…}, "strict": true}}}
    {"guided_json_schema": {…}}
    {"structured_outputs": {"choice": ["tea", "coffee"]}}

One of them a request: two constraints on one answer are refused, whichever they are. Beside a schema, wherever it stands,
`"as_written": true` takes it at its word.
"""

import json

from callsmith.core.schema import check_schema
from callsmith.core.values import Json, Output
from callsmith.wire.declare import OutputField, RequestFields, as_written, read_output
from callsmith.wire.fields import Fields

_HARMLESS = "disable_"  # options of other grammar engines, about how they work and not about what is allowed


def write_output(output: Output | None) -> dict[str, Json]:
    """The fields that `read_output` reads back as this output."""
    if output is None:
        return {}
    if output.schema is None:
        constraints = {"choice": list(output.choices), "regex": output.pattern, "grammar": output.grammar}
        return {"structured_outputs": {key: value for key, value in constraints.items() if value}}
    if output == Output.json_object():
        return {"response_format": {"type": "json_object"}}
    wanted = {"name": "answer", "schema": dict(output.schema), "strict": output.strict}
    if output.as_written:
        wanted["as_written"] = True
    return {"response_format": {"type": "json_schema", "json_schema": wanted}}


def write_text_output(output: Output | None) -> dict[str, Json]:
    """The fields of `/v1/responses` for this output: there the format stands under `text`."""
    fields = write_output(output)
    format = fields.pop("response_format", None)
    if format is None:
        return fields
    return {"text": {"format": {"type": format["type"], **format.get("json_schema", {})}}}


def read_text_format(fields: Fields, key: str) -> Output | None:
    """The output that `text` of `/v1/responses` asks for."""
    text = fields.required_object(key)
    format = text.object("format")
    if format is None:
        return None
    if format.text("type") == "json_schema" and format.get("json_schema") is None:  # what chat completions wrap is flat here
        return _schema(format, "schema", strict=format.flag("strict") or False)
    return _response_format(text, "format")


def _response_format(fields: Fields, key: str) -> Output | None:
    format = fields.required_object(key)
    match format.required_text("type"):
        case "text":
            return None
        case "json_object":
            return _schema(format, "schema") if format.get("schema") is not None else Output.json_object()
        case "json_schema":
            wanted = format.required_object("json_schema")
            return _schema(wanted, "schema", strict=wanted.flag("strict") or False)
        case other:
            raise format.error("type", f"{other!r} is none of text, json_object, json_schema")


def _schema(fields: Fields, key: str, *, strict: bool = False) -> Output:
    value = fields.get(key)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise fields.error(key, "is no JSON") from None
    schema = Fields.of(value, fields.at(key)).data
    check_schema(schema, fields.at(key))
    return Output(schema, strict=strict, as_written=fields.flag("as_written") or False)


def _choices(fields: Fields, key: str) -> Output:
    choices = fields.texts(key)
    if not choices or "" in choices:
        raise fields.error(key, "needs at least one text, and none that is empty")
    return Output(choices=choices)


def _pattern(fields: Fields, key: str) -> Output:
    return Output(pattern=fields.required_text(key))


def _grammar(fields: Fields, key: str) -> Output | None:
    """A grammar, in Lark or in GBNF; an empty text asks for none."""
    text = fields.text(key)
    return Output(grammar=text) if text else None


def _structured_outputs(fields: Fields, key: str) -> Output | None:
    inner = StructuredOutputs.of(fields.get(key), fields.at(key))
    for name, value in inner.data.items():
        if name not in StructuredOutputs.declared and not name.startswith(_HARMLESS) and value is not None:
            raise inner.error(name, "is not supported")
    return read_output(inner)


_SCHEMA = "object | string"
_SCHEMA_AGAIN = "As guided_json_schema."


class StructuredOutputs(RequestFields, component="StructuredOutputs"):
    """What the answer has to be, as vLLM has it."""

    json = OutputField(_SCHEMA, _schema)
    json_object = OutputField("boolean", lambda fields, key: Output.json_object() if fields.flag(key) else None)
    choice = OutputField("string | string[]", _choices)
    regex = OutputField("string", _pattern)
    grammar = OutputField("string", _grammar)
    as_written = as_written()


class StructuredFields(RequestFields):
    """What vLLM adds to every dialect."""

    structured_outputs = OutputField("StructuredOutputs", _structured_outputs)


class OutputFields(StructuredFields):
    """What an answer has to be, in chat completions and completions. One of them a request."""

    response_format = OutputField("ResponseFormat", _response_format)
    guided_json_schema = OutputField(_SCHEMA, _schema, "The answer fits this JSON Schema, which may come as text.")
    json_schema = OutputField(_SCHEMA, _schema, _SCHEMA_AGAIN)
    guided_json = OutputField(_SCHEMA, _schema, _SCHEMA_AGAIN)
    guided_choice = OutputField("string | string[]", _choices, "The answer is one of these texts.")
    guided_regex = OutputField("string", _pattern, "The answer fits this regular expression.")
    guided_grammar = OutputField("string", _grammar, "The answer fits this grammar: Lark, or llama.cpp's GBNF.")
    grammar = OutputField("string", _grammar, "As guided_grammar.")
    as_written = as_written()
