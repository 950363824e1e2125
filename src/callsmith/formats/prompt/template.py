"""`Template`: a model's own chat template, in a sandbox, with the conventions it was written for.

    template = Template(source, bos="<s>", now=datetime.now().strftime)
    template.render([{"role": "user", "content": "Hi"}], tools)

A template is a Jinja program out of a model file: it gets no more than text to work on. What it says when it refuses a
conversation (`raise_exception`) reaches the caller as a `UsageError`; when it is broken, as a `ModelError`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property, lru_cache
from typing import Any, NoReturn, TypeAlias, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from callsmith.core.errors import ModelError, UsageError
from callsmith.formats.prompt.adapt import TemplateInput, TemplateTraits, adapt, probe_template

Sources: TypeAlias = str | Mapping[str, str] | Sequence[Mapping[str, str]]

# For weights that carry no template: the shape most models without one of their own were tuned on.
CHATML = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# What a template can raise: it is a program, and the values it is given are not always what it expects.
FAILURES = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


class Template:
    """A chat template, or a family of named ones: `tool_use` is taken when there are tools, else `default`.

    `now` formats the present time (`datetime.now().strftime`); without it `strftime_now` is undefined, and templates that
    only like to know the date leave it out.
    """

    def __init__(self, source: Sources, *, bos: str = "", eos: str = "", now: Callable[[str], str] | None = None) -> None:
        self._sources = _by_name(source)
        self._bos, self._eos, self._now = bos, eos, now
        for text in self._sources.values():
            _compile(text)

    @property
    def source(self) -> str:
        """All the template's text."""
        return "\n".join(self._sources.values())

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] | None = None,
        *,
        generate: bool = True,
    ) -> str:
        """The text of a conversation, shaped as this template wants it. `generate` adds the beginning of the model's turn."""
        given = _template_input(messages, tools, variables)
        return self._render_or_raise(adapt(given, self.traits.adaptations), self._now, generate)

    def render_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] | None = None,
    ) -> tuple[str, str]:
        """The text of a conversation, and the tail of it that begins the model's turn ("" where the template writes none)."""
        given = adapt(_template_input(messages, tools, variables), self.traits.adaptations)
        now = cache(self._now) if self._now else None  # midnight must not fall between the two
        text, closed = self._render_or_raise(given, now, True), self._render_or_raise(given, now, False)
        return text, text[_shared_length(text, closed) :]

    @cached_property
    def traits(self) -> TemplateTraits:
        """What the template shows and how it wants things shaped: found out once, by trying."""
        return probe_template(self._try_render)

    def _render_or_raise(self, given: TemplateInput, now: Callable[[str], str] | None, generate: bool) -> str:
        try:
            return self._render(given, now, generate)
        except _Refused as error:
            raise UsageError(f"the model's chat template refuses the conversation: {error}", field="messages") from error
        except FAILURES as error:
            why = str(error) or type(error).__name__
            raise ModelError(f"the model's chat template fails: {why}", hint="Give the model another chat template.") from error

    def _try_render(self, given: TemplateInput) -> str | None:
        try:
            return self._render(given, self._now or fixed_date, True)
        except FAILURES:
            return None

    def _render(self, given: TemplateInput, now: Callable[[str], str] | None, generate: bool) -> str:
        name = "tool_use" if given.tools and "tool_use" in self._sources else "default"
        text = self._sources.get(name) or next(iter(self._sources.values()))
        clock = {"strftime_now": now, "datetime": now("%Y-%m-%d")} if now else {}
        tokens = {"bos_token": self._bos, "eos_token": self._eos}
        lists = {"messages": _plain_copy(given.messages), "tools": _plain_copy(given.tools) or None}
        own = {"add_generation_prompt": generate, "raise_exception": _raise_exception}
        return _compile(text).render({**clock, **tokens, **lists, **given.variables, **own})


def fixed_date(form: str) -> str:
    """A `now` that stands still: for renderings that nobody takes for today's."""
    return datetime(2025, 1, 1).strftime(form)


def _template_input(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None
) -> TemplateInput:
    return TemplateInput([dict(message) for message in messages], [dict(tool) for tool in tools], dict(variables or {}))


def _shared_length(text: str, closed: str) -> int:
    """How much two renderings share. Where they part inside a marker, that is not shared: `<|` of `<|end|>` and `<|user|>`."""
    if text.startswith(closed):
        return len(closed)
    length = next((index for index, (one, other) in enumerate(zip(text, closed, strict=False)) if one != other), len(text))
    opening = text.rfind("<", 0, length)
    return opening if opening > text.rfind(">", 0, length) else length


def _by_name(source: Sources) -> Mapping[str, str]:
    """Templates by name: of one text, of a mapping, or of a list of `{"name", "template"}`."""
    if isinstance(source, str):
        return {"default": source}
    named = dict(source) if isinstance(source, Mapping) else {row["name"]: row["template"] for row in source}
    if not named:
        raise UsageError("there is no chat template in an empty collection")
    return named


def _plain_copy(value: Any) -> Any:
    """The template's own copy, in plain dicts and lists."""
    if isinstance(value, Mapping):
        return {key: _plain_copy(inner) for key, inner in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain_copy(inner) for inner in cast("Sequence[Any]", value)]
    return value


class _Refused(jinja2.TemplateError):
    """The template called `raise_exception`."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Nothing can be changed but lists, which some templates keep a queue in; all that a template holds is its own copy."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return (type(obj) is list and attr in ("append", "pop")) or super().is_safe_attribute(obj, attr, value)


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's words for training; to us it is its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _raise_exception(message: object) -> NoReturn:
    raise _Refused(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as `json.dumps` writes it; jinja2's own filter would escape it for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys, default=_json_default
    )


def _json_default(value: object) -> object:
    """What `json.dumps` does not know: generators (out of `map`, `select`), mappings that are no dicts, undefined."""
    if isinstance(value, jinja2.Undefined):
        return None
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    if isinstance(value, Iterable):
        return list(cast("Iterable[Any]", value))
    raise TypeError(f"{type(value).__name__} is not JSON")


def _environment() -> _Sandbox:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, _Generation])
    environment.filters["tojson"] = _tojson
    return environment


_ENVIRONMENT = _environment()


@lru_cache(maxsize=64)
def _compile(text: str) -> jinja2.Template:
    try:
        return _ENVIRONMENT.from_string(text)
    except jinja2.TemplateSyntaxError as error:
        raise ModelError(
            f"the chat template is not valid: {error.message} (line {error.lineno})", hint="Give the model another chat template."
        ) from error
