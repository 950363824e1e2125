"""Rendering a model's own chat template in a sandbox.

    template = Template(source, bos="<s>", now=datetime.now().strftime)
    template.render([{"role": "user", "content": "Hi"}], tools)

A template is a Jinja program out of a model file, so it may only work on text, in a limited number of steps. If it refuses a
conversation (`raise_exception`), its message is raised as a `UsageError`; if it fails, that is a `ModelError`.
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

from callsmith.core.errors import ModelError, UsageError
from callsmith.core.types.escaped_text import cut_text
from callsmith.formats.prompt.adapt import TemplateInput, TemplateTraits, adapt, probe_template
from callsmith.formats.prompt.meter import TooManySteps, begin, pay_for_text, size_of, spent
from callsmith.formats.prompt.sandbox import Sandbox

MOST_STEPS_PROBING = 4_000_000  # of all probes together; the templates in use need 1.4 million at most
LONGEST_DATE = 256
MOST_NAMES = 16  # there are `default`, `tool_use`, and hardly ever a third
Sources: TypeAlias = str | Mapping[str, str] | Sequence[Mapping[str, str]]

# For weights without a template: the one that most such models were trained on.
CHATML = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# What a template may raise: it is a program, and its input is not always what it expects.
FAILURES = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
    MemoryError,
)


class Template:
    """A chat template, or several by name: `tool_use` is used if there are tools, else `default`.

    `now` formats the current time (`datetime.now().strftime`); without it `strftime_now` is undefined, and most templates leave
    the date out.
    """

    def __init__(self, source: Sources, *, bos: str = "", eos: str = "", now: Callable[[str], str] | None = None) -> None:
        self._sources = _by_name(source)
        self._bos, self._eos, self._now = bos, eos, now
        for text in self._sources.values():
            _compile(text)

    @property
    def source(self) -> str:
        """The source of the template, or of all of them."""
        return "\n".join(self._sources.values())

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] | None = None,
        *,
        generate: bool = True,
    ) -> str:
        """Render a conversation, adapted to this template. `generate` adds the beginning of the model's turn."""
        return self._render_or_raise(self._adapt(messages, tools, variables), self._now, generate)

    def render_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] | None = None,
    ) -> tuple[str, str]:
        """Render a conversation; also returns the end of the text that begins the model's turn ("" if there is none)."""
        conversation = self._adapt(messages, tools, variables)
        now = cache(self._now) if self._now else None  # both renderings must have the same time
        text, closed = self._render_or_raise(conversation, now, True), self._render_or_raise(conversation, now, False)
        return text, text[_shared_length(text, closed) :]

    @cached_property
    def traits(self) -> TemplateTraits:
        """What the template shows and which adaptations it needs: found by probing, once."""
        steps = 0

        def try_render(conversation: TemplateInput) -> str | None:
            nonlocal steps
            try:
                text = self._render(conversation, self._now or fixed_date, True)
            except TooManySteps as error:
                raise _failure(error) from error
            except FAILURES:
                text = None
            steps += spent()
            if steps > MOST_STEPS_PROBING:
                raise _failure(TooManySteps("it takes too long with made-up conversations"))
            return text

        return probe_template(try_render)

    def _adapt(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None
    ) -> TemplateInput:
        conversation = TemplateInput([*map(dict, messages)], [*map(dict, tools)], dict(variables or {}))
        return adapt(conversation, self.traits.adaptations)

    def _render_or_raise(self, conversation: TemplateInput, now: Callable[[str], str] | None, generate: bool) -> str:
        try:
            return self._render(conversation, now, generate)
        except _Refused as error:
            raise UsageError(f"the model's chat template refuses the conversation: {error}", field="messages") from error
        except FAILURES as error:
            raise _failure(error) from error

    def _render(self, conversation: TemplateInput, now: Callable[[str], str] | None, generate: bool) -> str:
        name = "tool_use" if conversation.tools and "tool_use" in self._sources else "default"
        text = self._sources.get(name) or next(iter(self._sources.values()))
        clock = {"strftime_now": _short_dates(now), "datetime": now("%Y-%m-%d")} if now else {}
        tokens = {"bos_token": self._bos, "eos_token": self._eos}
        lists = {"messages": _plain_copy(conversation.messages), "tools": _plain_copy(conversation.tools) or None}
        own = {"add_generation_prompt": generate, "raise_exception": _raise_exception}
        variables = {**clock, **tokens, **lists, **_plain_copy(conversation.variables)}
        begin(size_of(variables))
        return _compile(text).render({**variables, **own})


def _failure(error: Exception) -> ModelError:
    why = str(error) or type(error).__name__
    return ModelError(f"the model's chat template fails: {why}", hint="Give the model another chat template.")


def _short_dates(now: Callable[[str], str]) -> Callable[[str], str]:
    def strftime_now(form: str) -> str:
        if len(form) > LONGEST_DATE:
            raise TooManySteps(f"the template asks for a date in more than {LONGEST_DATE} characters")
        return now(form)

    return strftime_now


def fixed_date(form: str) -> str:
    """A `now` that is always the same, for renderings that must not depend on the date."""
    return datetime(2025, 1, 1).strftime(form)


def _shared_length(text: str, closed: str) -> int:
    """The length of the common start of two renderings, without the start of a marker: `<|` of `<|end|>` and `<|user|>`."""
    if text.startswith(closed):
        return len(closed)
    length = next((index for index, (one, other) in enumerate(zip(text, closed, strict=False)) if one != other), len(text))
    opening = text.rfind("<", 0, length)
    return opening if opening > text.rfind(">", 0, length) else length


def _by_name(source: Sources) -> Mapping[str, str]:
    """Templates by name, from one text, a mapping, or a list of `{"name", "template"}`."""
    if isinstance(source, str):
        return {"default": source}
    sources: dict[str, Any] = dict(source) if isinstance(source, Mapping) else {row["name"]: row["template"] for row in source}
    if not sources:
        raise UsageError("there is no chat template in an empty collection")
    if len(sources) > MOST_NAMES or not all(isinstance(text, str) for text in sources.values()):
        raise UsageError(f"a collection of chat templates has at most {MOST_NAMES} texts by name")
    return sources


def _plain_copy(value: Any) -> Any:
    """A deep copy in plain dicts and lists, which the template may change."""
    if type(value) is str:
        return value
    if isinstance(value, Mapping):
        return {key: _plain_copy(inner) for key, inner in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain_copy(inner) for inner in cast("Sequence[Any]", value)]
    return value


class _Refused(jinja2.TemplateError):
    """The template called `raise_exception`."""


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks the assistant's text for training, renders as its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _raise_exception(message: object) -> NoReturn:
    pay_for_text(message)
    raise _Refused(cut_text(str(message), 2000))


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
    """The default of `json.dumps`, for generators (of `map`, `select`), other mappings than dicts, and undefined."""
    if isinstance(value, jinja2.Undefined):
        return None
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    if isinstance(value, Iterable):
        return list(cast("Iterable[Any]", value))
    raise TypeError(f"{type(value).__name__} is not JSON")


_ENVIRONMENT = Sandbox([LoopControlExtension, _Generation], {"tojson": _tojson})


@lru_cache(maxsize=64)
def _compile(text: str) -> jinja2.Template:
    try:
        return _ENVIRONMENT.from_string(text)
    except jinja2.TemplateSyntaxError as error:
        why = f"{error.message} (line {error.lineno})"
    except (*FAILURES, SyntaxError) as error:  # of Python, which the template is compiled to
        why = f"it is nested too deeply, or cannot be compiled ({type(error).__name__})"
    raise ModelError(f"the chat template is not valid: {why}", hint="Give the model another chat template.")
