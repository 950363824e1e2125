"""`HostedModel`: a model that another server runs, as plug-ins in that server see it.

The server renders prompts and generates; from the tokenizer and its chat template we find out how the model writes, constrain its
answers with grammars, and read them.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from callsmith.adapters.tool_request import ToolRequest
from callsmith.core.errors import CallsmithError, Unavailable
from callsmith.core.values import Json
from callsmith.engines.lru import LRU, IdentityLRU
from callsmith.formats.algebra import Format, nodes_of
from callsmith.formats.inference.detect import shows_reasoning
from callsmith.formats.prompt.template import Template
from callsmith.formats.write import literal_text
from callsmith.grammar.nodes import Grammar
from callsmith.models.grammars import Grammars
from callsmith.models.plugins import load_presets
from callsmith.models.presets import preset_for
from callsmith.models.speech import find_speech

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
        speech = find_speech(format, template, preset_for(name), response_template)
        if speech is None:
            raise Unavailable(
                f"callsmith does not know in which format {name or 'this model'} writes calls: its chat template shows none",
                hint=f"set {FORMAT_VARIABLE} to one that `callsmith formats` lists, or {TEMPLATE_VARIABLE} to a template file",
            )
        self.format = speech.format
        self.template = template
        self.parallel = speech.parallel
        self.thinks = template is not None and shows_reasoning(self.format, template.source)
        read = self.format.also(*speech.also)
        written = repr(read)
        self.needs_specials = any(token in written for token in specials)
        foreign = tuple(
            sorted(token for token in specials if token not in written and not any(word in token for word in _PLACEHOLDERS))
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
        found = self._opened.get(key)
        return self._opened.put(key, self._render_opened(variables, after_tool, tools)) if found is None else found

    def opened_in(self, prompt: str) -> str:
        """The end of a rendered prompt that begins the model's turn; "" where it cannot be told."""
        for opened in sorted(self._usual_openings, key=len, reverse=True):
            if opened and prompt.endswith(opened):
                return opened
        start = prompt.rfind(self._header) if self._header.strip() else -1
        return prompt[start:] if start >= 0 else ""

    def is_thinking(self, opened: str) -> bool:
        """Whether the model's turn, of which this is the beginning, is within reasoning."""
        thinks = self.format.thinks
        if thinks is None:
            return False
        open, close = (literal_text(nodes_of(marker)).strip() for marker in (thinks.open, thinks.close))
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
        return frozenset(self.opened_by(one, after_tool=after) for one in thinking for after in (False, True)) - {""}

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
        made = self._grammars.get(
            tool_request.offered,
            tool_request.choice,
            parallel=tool_request.parallel and self.parallel,
            opened=opened if is_required or not self.is_thinking(opened) else "",
            thinking=is_required and thinking and self.thinks,
        )
        return made if isinstance(made, Grammar) else None


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
