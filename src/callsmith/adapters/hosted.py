"""`HostedModel`: a model that another server runs, as plug-ins in that server see it.

The server renders prompts and generates; from the tokenizer and its chat template we find out how the model writes, constrain its
answers with grammars, and read them. `ToolRequest` is what a request to that server asks of its tools; `find` gets the names of
the server's own classes, which move between its modules from release to release.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from callsmith.core.errors import CallsmithError, Unavailable, UsageError
from callsmith.core.values import Choice, Json, Tool
from callsmith.engines.lru import LRU, IdentityLRU
from callsmith.formats.algebra import Format, nodes_of
from callsmith.formats.inference.detect import shows_reasoning
from callsmith.formats.prompt.template import Template
from callsmith.formats.write import literal_text
from callsmith.grammar.nodes import Grammar
from callsmith.models.grammars import Grammars
from callsmith.models.opening import resolve_format
from callsmith.models.plugins import load_presets
from callsmith.models.presets import preset_for


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """What a request asks of the answer: which tools there are, whether they must be called, whether several at once."""

    tools: tuple[Tool, ...] = ()
    choice: Choice = Choice("none")
    parallel: bool = True

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that may be called."""
        return self.choice.among(self.tools)

    @property
    def is_constrained(self) -> bool:
        """Whether a grammar constrains the calls: they must be made, or one of the tools is strict."""
        return bool(self.offered) and (self.choice.mode == "required" or any(tool.strict for tool in self.offered))


def read_tool_request(request: Any, *, all_strict: bool = False) -> ToolRequest:
    """What a chat or Responses request asks of its tools. `all_strict`: the operator wants every tool strict."""
    return read_tool_fields(request.tools or (), request.tool_choice, request.parallel_tool_calls, all_strict=all_strict)


def read_tool_fields(tools: Any, choice: Any, parallel: bool | None, *, all_strict: bool = False) -> ToolRequest:
    """The same of the fields of a request, in the classes of the server."""
    known = tuple(_tools(tools, all_strict))
    if not known:
        return ToolRequest()
    choice = _read_choice(choice)
    # A tool that is named is called exactly once: a small model that may go on repeats the call until its tokens are used up.
    tool_request = ToolRequest(known, choice, parallel is not False and not choice.names)
    _ = tool_request.offered  # an unknown name is an error here
    return tool_request


def _tools(tools: Any, all_strict: bool) -> Iterator[Tool]:
    """The function tools; a chat request has them under `function`, a Responses request has them bare."""
    for tool in tools:
        function = getattr(tool, "function", None) or tool
        name = getattr(function, "name", None)
        if isinstance(name, str) and getattr(tool, "type", "function") == "function":
            description, parameters = getattr(function, "description", None), getattr(function, "parameters", None)
            schema: dict[str, Any] = dict(parameters) if parameters else {"type": "object", "properties": {}}
            yield Tool(name, description or "", schema, strict=all_strict or bool(getattr(function, "strict", None)))


def _read_choice(choice: Any) -> Choice:
    """A mode, or the one tool that is to be called."""
    if choice is None or choice in ("none", "auto", "required"):
        return Choice(choice or "auto")
    if isinstance(choice, str):
        raise UsageError(
            f"tool_choice must be none, auto, required or a function's name, and it is {choice!r}", field="tool_choice"
        )
    name = getattr(getattr(choice, "function", None) or choice, "name", None)
    if not isinstance(name, str):
        raise ValueError(f"tool_choice: callsmith knows none, auto, required and the name of a function, not {choice!r}")
    return Choice.only(name)


FORMAT_VARIABLE: Final = "CALLSMITH_FORMAT"
TEMPLATE_VARIABLE: Final = "CALLSMITH_CHAT_TEMPLATE"
TAIL_TOKENS: Final = 256  # of a prompt: the beginning of the model's turn is in them
_PLACEHOLDERS: Final = ("reserved", "unused", "placeholder", "extra_id")  # special tokens that no model writes
_OPENINGS: Final = 64  # renderings that are cached

_USER: Final = {"role": "user", "content": "Hello"}
_CALL: Final = {"id": "call00001", "type": "function", "function": {"name": "probe", "arguments": {"key": "value"}}}
_AFTER_TOOL: Final = (
    _USER,
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "call00001", "name": "probe", "content": "done"},
)
_PROBE_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "probe",
        "description": "A tool.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    },
}


class HostedModel:
    """How a model writes that another server runs. Its format is the one in `CALLSMITH_FORMAT`, else what its template shows."""

    _known: IdentityLRU["HostedModel"] = IdentityLRU(8)

    def __init__(
        self,
        template: Template | None,
        *,
        name: str = "",
        specials: frozenset[str] = frozenset(),
        format: str | None = None,
        response_template: Json = None,
    ) -> None:
        load_presets()
        choice = resolve_format(format, template, preset_for(name), response_template)
        if choice is None:
            raise Unavailable(
                f"callsmith does not know in which format {name or 'this model'} writes calls: its chat template shows none",
                hint=f"set {FORMAT_VARIABLE} to one that `callsmith formats` lists, or {TEMPLATE_VARIABLE} to a template file",
            )
        self.format = choice.format
        self.template = template
        self.parallel = choice.parallel
        self.thinks = template is not None and shows_reasoning(self.format, template.source)
        read = self.format.also(*choice.also)
        spelling = repr(read)
        self.needs_specials = any(token in spelling for token in specials)
        foreign = tuple(
            sorted(token for token in specials if token not in spelling and not any(word in token for word in _PLACEHOLDERS))
        )
        self.read_format: Format = replace(read, drop=(*read.drop, *foreign))
        self._grammars = Grammars(self.format)
        self._opened: LRU[str] = LRU(_OPENINGS)

    @classmethod
    def of(cls, tokenizer: Any) -> "HostedModel":
        """The model of this tokenizer, found out once."""
        return cls._known.get_or_make((tokenizer,), lambda: cls._from_tokenizer(tokenizer))

    @classmethod
    def _from_tokenizer(cls, tokenizer: Any) -> "HostedModel":
        source = _template_file() or getattr(tokenizer, "chat_template", None)
        template = source and Template(
            source,
            bos=getattr(tokenizer, "bos_token", None) or "",
            eos=getattr(tokenizer, "eos_token", None) or "",
            now=lambda form: datetime.now().astimezone().strftime(form),
        )
        name = str(getattr(tokenizer, "name_or_path", "") or "")
        return cls(
            template or None,
            name=Path(name).name,
            specials=_hidden_tokens(tokenizer),
            format=os.environ.get(FORMAT_VARIABLE) or None,
            response_template=getattr(tokenizer, "response_template", None),
        )

    # --- where the model's turn begins ------------------------------------------------------------------------------------

    def opened_by(self, variables: Mapping[str, Any] | None = None, *, after_tool: bool = False, tools: bool = True) -> str:
        """What the template opens the model's turn with, for a request with these template variables."""
        key = (repr(sorted((variables or {}).items(), key=repr)), after_tool, tools)
        opening = self._opened.get(key)
        return self._opened.put(key, self._render_opened(variables, after_tool, tools)) if opening is None else opening

    def opened_in(self, prompt: str) -> str:
        """The end of a rendered prompt that begins the model's turn; "" where it is not known."""
        for opened in sorted(self._usual_openings, key=len, reverse=True):
            if opened and prompt.endswith(opened):
                return opened
        start = prompt.rfind(self._header) if self._header.strip() else -1
        return prompt[start:] if start >= 0 else ""

    @cached_property
    def thought_markers(self) -> tuple[str, str]:
        """What reasoning begins and ends with; empty where the format has none."""
        thinks = self.format.thinks
        return (literal_text(nodes_of(thinks.open)).strip(), literal_text(nodes_of(thinks.close)).strip()) if thinks else ("", "")

    def is_thinking(self, opened: str) -> bool:
        """Whether the model's turn, of which this is the beginning, is within reasoning."""
        open, close = self.thought_markers
        return bool(open) and opened.rfind(open) > opened.rfind(close or "\0")

    def _render_opened(self, variables: Mapping[str, Any] | None, after_tool: bool, tools: bool) -> str:
        if self.template is None:
            return ""
        messages = _AFTER_TOOL if after_tool else (_USER,)
        try:
            return self.template.render_prompt(messages, [_PROBE_TOOL] if tools else [], variables)[1]
        except CallsmithError:
            return ""

    @cached_property
    def _usual_openings(self) -> frozenset[str]:
        thinking = [None, *({"enable_thinking": on, "thinking": on} for on in (True, False))]
        return frozenset(self.opened_by(item, after_tool=after) for item in thinking for after in (False, True)) - {""}

    @cached_property
    def _header(self) -> str:
        """What all usual openings begin with."""
        openings = self._usual_openings
        if not openings:
            return ""
        return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(min(openings), max(openings), strict=False)))

    # --- grammars ---------------------------------------------------------------------------------------------------------

    def grammar(self, tool_request: ToolRequest, opened: str, *, thinking: bool) -> Grammar | None:
        """The grammar of the answer; None where nothing is constrained. `thinking`: it may begin with reasoning.

        Where calls may be left out, the grammar waits for the marker of one, and reasoning is free as all other text is.
        """
        if not tool_request.is_constrained:
            return None
        is_required = tool_request.choice.mode == "required"
        grammar = self._grammars.get(
            tool_request.offered,
            tool_request.choice,
            parallel=tool_request.parallel and self.parallel,
            opened=opened if is_required or not self.is_thinking(opened) else "",
            thinking=is_required and thinking and self.thinks,
        )
        return grammar if isinstance(grammar, Grammar) else None


def _template_file() -> str | None:
    path = os.environ.get(TEMPLATE_VARIABLE)
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(
            f"cannot read the chat template in {TEMPLATE_VARIABLE}: {error}", hint="give a readable file"
        ) from error


def _hidden_tokens(tokenizer: Any) -> frozenset[str]:
    """The tokens that a server leaves out of the text where it skips special tokens."""
    added: Mapping[int, Any] | None = getattr(tokenizer, "added_tokens_decoder", None)
    if added:
        return frozenset(str(token.content) for token in added.values() if getattr(token, "special", False))
    return frozenset(str(token) for token in getattr(tokenizer, "all_special_tokens", ()))


def find(package: str, name: str, *modules: str) -> Any:
    """The object of this name in the first of the modules that has it; an `Unavailable` that names them all if none has."""
    problems: list[str] = []
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            problems.append(f"{module}: {error}")
    raise Unavailable(
        f"callsmith cannot be used inside {package} {installed_version(package)}: {name} is not where it is expected "
        f"({'; '.join(problems)})",
        hint=f"update callsmith, or install a release of {package} that it knows (see docs/servers.md)",
    )


def installed_version(package: str) -> str:
    """The version of an installed package, as far as it says one."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "(unknown version)"
