"""The model of a command that was given none: chosen, told, and asked about before something large is fetched."""

import sys

import typer

from callsmith.cli.terminal.output import echo
from callsmith.core.options import DefaultModel
from callsmith.core.types.quantities import write_size


def pick_default(policy: DefaultModel) -> str:
    """The name of the model to take. Whoever is not at a terminal is asked nothing, and gets the default of the catalogue."""
    from callsmith.engines.memory import model_memory
    from callsmith.models.weights.catalogue import catalogue, default_model
    from callsmith.models.weights.default_choice import ask_hub, choose_default, find_candidates
    from callsmith.models.weights.hub_models import hub_models

    own = default_model()
    if policy == "embedded":
        return own
    choice = choose_default(
        policy,
        installed=find_candidates(),
        room=model_memory(),
        can_ask=is_at_terminal(),
        ask_hub=ask_hub,
    )
    if choice.is_question:
        model = hub_models()[choice.name]
        echo(f"{model.name} ({model.title}, {model.licence}) may call tools better than {own}. It is {choice.reason}.", err=True)
        sizes = f"{write_size(choice.size)} instead of {write_size(catalogue()[own].size)}"
        return choice.name if typer.confirm(f"Fetch it, {sizes}?", default=False, err=True) else own
    if choice.reason:
        size = f", {write_size(choice.size)}" if choice.size else ""
        echo(f"Model: {choice.name}{size}: {choice.reason}", err=True)
    return choice.name


def is_at_terminal() -> bool:
    """Whether somebody sees a question, and can answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()
