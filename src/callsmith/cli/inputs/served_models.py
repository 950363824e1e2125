"""The models that a server has, as its settings name them."""

from dataclasses import replace
from pathlib import Path

from callsmith.cli.inputs.default_model import pick_default
from callsmith.cli.inputs.options import alias_of, register_user_files
from callsmith.cli.terminal.fetching import ensure
from callsmith.core.errors import UsageError
from callsmith.models import Options, describe_model, open_model
from callsmith.models.remote.providers import parse_spec
from callsmith.models.router import LazyModel, MemoryBudget
from callsmith.models.weights.catalogue import default_model
from callsmith.server.settings import Llm, Settings


def open_models(settings: Settings) -> dict[str, LazyModel]:
    """The models of the settings, by name. One alone is loaded at once; several are when they are first asked for, but for
    those of other servers, of which nothing is loaded here."""
    if not settings.llm.model and not settings.models:
        settings = replace(settings, llm=replace(settings.llm, model=pick_default(settings.llm.default_model)))
    chosen = _chosen_models(settings)
    budget = MemoryBudget(settings.llm.memory_bytes)
    for llm in chosen.values():
        ensure(_spec(llm))
    models = {name: _lazy_model(name, llm, settings, budget) for name, llm in chosen.items()}
    for model in models.values():
        budget.check(model)
    for name, llm in chosen.items():
        remote = parse_spec(_spec(llm))
        if len(models) == 1 or (remote and remote.model):
            models[name].load_now()
    return models


def model_options(llm: Llm, settings: Settings) -> Options:
    """How a model is opened."""
    format = register_user_files(llm)
    template = Path(llm.chat_template) if llm.chat_template else None
    if template and not template.is_file():
        raise UsageError(f"there is no chat template at {template}", field="llm.chat_template")
    return Options(
        format=format,
        template=template,
        **llm.for_engine(),
        policy=llm.tool_choice_policy,
        live=llm.concurrency,
        queue=settings.queue + settings.queue // 4,  # as many as are admitted
        auto_guarded=llm.auto_guarded,
        tool_prompt=llm.tool_prompt,
        call_bias=llm.call_bias,
        in_reasoning=llm.in_reasoning,
        api=llm.api,
        repair=llm.repair,
    )


def _chosen_models(settings: Settings) -> dict[str, Llm]:
    """Those that have sections of their own, and before them the one of `[llm]`, if it names one or there is no other."""
    llm = settings.llm
    if settings.models and not llm.model:
        if llm.name:
            raise UsageError("--name is for one model without a name; here each has its own", field="llm.name")
        return dict(settings.models)
    name = llm.name or alias_of(_spec(llm))
    if name in settings.models:
        raise UsageError(f"two models are called {name!r}; give one of them another name", field="llm.name")
    return {name: llm, **settings.models}


def _spec(llm: Llm) -> str:
    return llm.model or default_model()


def _lazy_model(name: str, llm: Llm, settings: Settings, budget: MemoryBudget) -> LazyModel:
    spec, options = _spec(llm), model_options(llm, settings)
    described = describe_model(spec, options)
    return LazyModel(name, lambda: open_model(spec, options), described, unload_after=llm.unload_seconds, budget=budget)
