"""`Setup`: one way of asking a model, so that several can be compared on the same cases and the same weights."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias, get_args

from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.ports import Model
from callsmith.core.values import ChoicePolicy, Message, Request, Sampling, Tool
from callsmith.formats.prompt.tool_prompt import TEMPLATE
from callsmith.models.local import LocalModel
from callsmith.models.remote.model import RemoteModel
from callsmith.models.tool_prompts import tool_prompt_named

When: TypeAlias = Literal["default", "auto", "required"]
_POLICIES: Final[dict[str, ChoicePolicy | None]] = {"default": None, "auto": "auto", "required": "required_first_hop"}
_WORDS: Final[dict[str, bool | None]] = {"yes": True, "no": False, "default": None}
WithToolPrompt: TypeAlias = Callable[[str], Model]  # the same model, with the tool prompt of this name


@dataclass(frozen=True, slots=True)
class Setup:
    """One way of asking. None and "default" leave it to the model's own settings, which is what a user gets.

    `choice`: whether the model may choose between a call and text ("auto"), or must call a tool before it answers ("required").
    `constrained`: calls that it may choose to make are held to the tools' schemas. `repairs`: what it writes is read with
    leniency, in all formats that are known of it; otherwise it must be valid as it is, in the format of the setup.
    `parallel`: several calls may be made at once. `guards`: the safety net of small models, in conversations. `prompt` names how
    tools are put to the model; empty: in its own way. `bias` makes calls likelier where it is decided whether to call; a prompt
    that has no threshold yet gets 0 for it.
    """

    name: str
    choice: When = "default"
    constrained: bool | None = None
    repairs: bool | None = None
    parallel: bool | None = None
    guards: bool | None = None
    prompt: str = ""
    bias: float | None = None

    def request(self, messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling) -> Request:
        """What a model is asked, in this way."""
        policy = _POLICIES[self.choice]
        return Request(
            tuple(messages), tuple(tools), parallel=self.parallel, policy=policy, sampling=sampling, call_bias=self.bias
        )

    def describe(self) -> dict[str, Any]:
        """The setup as JSON, without its name. A tool prompt whose words have changed makes another setup."""
        described, has_words = asdict(self), self.prompt not in ("", TEMPLATE.name)
        for key in ("name", *(() if has_words else ("prompt",)), *(("bias",) if self.bias is None else ())):
            del described[key]
        if has_words:
            words = replace(tool_prompt_named(self.prompt), description="", threshold=None)
            described["words"] = sha256(json.dumps(asdict(words), sort_keys=True).encode()).hexdigest()[:12]
        return described


NAMED: Final = {
    setup.name: setup
    for setup in (
        Setup("default"),
        Setup("free", "auto", constrained=False, repairs=False, parallel=True, guards=False, prompt=TEMPLATE.name),
        Setup("free-repaired", "auto", constrained=False, repairs=True, parallel=True, guards=False, prompt=TEMPLATE.name),
        Setup("guarded", "auto", constrained=True, repairs=True, parallel=True, guards=False, prompt=TEMPLATE.name),
        Setup("required", "required", constrained=True, repairs=True, parallel=True, guards=False, prompt=TEMPLATE.name),
    )
}


def read_setups(texts: Iterable[str]) -> list[Setup]:
    """Setups by their names, or as `name=choice:auto,constrained:yes`, which may begin with the name of another one."""
    setups = [_read(text) for text in texts]
    names = [setup.name for setup in setups]
    if len(set(names)) != len(names):
        raise UsageError("two setups have the same name", field="setup")
    return setups


def _read(text: str) -> Setup:
    name, has_parts, rest = text.partition("=")
    if not has_parts:
        if name not in NAMED:
            raise UnknownName("setup", name, NAMED, field="setup")
        return NAMED[name]
    setup, known = Setup(name), {field.name for field in fields(Setup)} - {"name"}
    for part in filter(None, rest.split(",")):
        key, colon, value = part.partition(":")
        if not colon and key in NAMED:
            setup = replace(NAMED[key], name=name)
        elif key not in known:
            raise UnknownName("part of a setup", key, known, field="setup")
        else:
            setup = replace(setup, **{key: _value(key, value)})
    return setup


def _value(key: str, value: str) -> str | float | bool | None:
    """The value of a part of a setup, as it is written behind the colon."""
    if key == "prompt":
        return tool_prompt_named(value).name
    if key == "bias":
        try:
            return float(value)
        except ValueError:
            raise UsageError(f"the `bias` of a setup must be a number, not {value!r}", field="setup") from None
    allowed = get_args(When) if key == "choice" else _WORDS
    if value not in allowed:
        raise UnknownName(f"value of {key!r} in a setup", value, allowed, field="setup")
    return value if key == "choice" else _WORDS[value]


def set_up(model: Model, setup: Setup, with_tool_prompt: WithToolPrompt | None = None) -> Model:
    """The same model, asked in this way. Weights and connections are shared with the one that is given.

    `with_tool_prompt` makes it with another tool prompt; where there is none, a setup that names one is a UsageError.
    """
    if setup.prompt and (with_tool_prompt is not None or setup.prompt != TEMPLATE.name):
        if with_tool_prompt is None:
            raise UsageError(
                f"setup {setup.name!r}: tools can be put in another way only to a model that runs here", field="setup"
            )
        model = with_tool_prompt(setup.prompt)
    if isinstance(model, LocalModel):
        traits = model.traits
        if setup.bias is not None and traits.tool_prompt.threshold is None:
            traits = replace(traits, tool_prompt=replace(traits.tool_prompt, threshold=0.0))
        if setup.constrained is not None:
            traits = replace(traits, auto_guarded=setup.constrained)
        if setup.repairs is False:
            traits = replace(traits, also=(), strict=True)
        return model if traits == model.traits else LocalModel(model.engine, model.format, model.template, traits)
    if isinstance(model, RemoteModel) and setup.repairs is not None:
        quirks = replace(model.quirks, repairs=setup.repairs, checks=setup.repairs)
        return RemoteModel(model.upstream, model.dialect, model.model, quirks, model.traits)
    return model


def offered_tools(model: Model, setup: Setup, tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """The tools as this setup offers them: another server holds calls to their schemas if a field of each tool says so."""
    if setup.constrained and isinstance(model, RemoteModel):
        return tuple(replace(tool, strict=True) for tool in tools)
    return tuple(tools)
