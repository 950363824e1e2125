"""Fields that requests of several dialects have."""

from functools import cache

from callsmith.core.values import Output
from callsmith.wire.declare.request_fields import Field, RequestFields, flag, text
from callsmith.wire.fields import Fields


class ModelFields(RequestFields):
    """Which model is asked, and how the answer comes."""

    model = text("A model, or an alias; without it the first one.")
    stream = flag("Whether the answer comes as a stream.")


class CacheFields(RequestFields):
    """With whom a cached prompt is shared."""

    cache_salt = text("What is cached of the prompt is reused only with the same one.")
    prompt_cache_key = text("Requests with the same one go to the same of several servers.")


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
