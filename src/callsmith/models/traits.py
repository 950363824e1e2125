"""`Traits`: what is known of a local model besides its format and template."""

from dataclasses import dataclass

from callsmith.core.ports import ModelInfo
from callsmith.core.values import ChoicePolicy, InReasoning, Sampling
from callsmith.engines.port import EngineInfo, with_defaults
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.template import Template
from callsmith.formats.prompt.tool_prompt import TEMPLATE, ToolPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What the catalogue or a preset says of a model.

    `parallel`: whether it may be left to make several calls at once where the request does not say: small models do not know when
    to stop. `policy` says when it must call a tool where the request leaves the choice to it, `guards` names the guards it needs;
    `auto_guarded` constrains its calls also where the choice is `auto`; `in_reasoning` says what is done with calls inside its
    reasoning; `tool_prompt` how tools are put to it, and `threshold` from which log odds on it calls.
    """

    parallel: bool = True
    policy: ChoicePolicy | None = None
    guards: tuple[str, ...] = ()
    auto_guarded: bool = False
    in_reasoning: InReasoning = "recover"
    tool_prompt: str = ""
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of a model besides its format and template.

    `also` are formats it is read in besides its own; `parallel`, whether it may make several calls at once where a request does
    not say; `thinks`, whether it reasons; `auto_guarded`, whether calls are constrained also where the choice is `auto`;
    `policy`, on which hops it may choose at all; `in_reasoning`, what is done with calls inside its reasoning;
    `guards`, the names of the guards it needs where its calls are run here. `strict`: what it writes is read without repairs,
    nothing is repaired or asked for again; for measuring what repairs are worth. `tool_prompt` is how tools are put to it;
    where that has a threshold, it is decided before an answer whether it has calls. `call_bias` is added to the score of such
    decisions.
    """

    also: tuple[Format, ...] = ()
    sampling: Sampling = Sampling()
    parallel: bool = True
    thinks: bool = False
    auto_guarded: bool = False
    policy: ChoicePolicy = "auto"
    in_reasoning: InReasoning = "recover"
    guards: tuple[str, ...] = ()
    strict: bool = False
    tool_prompt: ToolPrompt = TEMPLATE
    call_bias: float = 0.0


def describe_local(engine: EngineInfo, format: Format, template: Template, traits: Traits) -> ModelInfo:
    """What is known of the model that these make, opened or not."""
    return ModelInfo(
        name=engine.name,
        description=engine.description,
        format=format.name,
        template=template.source,
        weights=engine.weights,
        memory=engine.memory,
        placement=engine.placement,
        thinks=traits.thinks,
        context=engine.context,
        policy=traits.policy,
        sampling=with_defaults(traits.sampling, engine.sampling),
        guards=traits.guards,
        tool_prompt=traits.tool_prompt.name,
        reads_images=engine.count_images is not None,
    )


NOTHING_KNOWN = Traits()
