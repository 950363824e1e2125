"""`open_model`: a model spec, as users write it behind `--model`, becomes a model that answers."""

import asyncio
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.options import EngineOptions
from callsmith.core.ports import ModelInfo, OpenedModel
from callsmith.core.types.field_checks import check_argument, check_fields
from callsmith.core.values import ChoicePolicy, InReasoning, Json, Repair, Sampling
from callsmith.engines import accepted_options, find_description, find_engine
from callsmith.engines.port import Engine, EngineInfo
from callsmith.engines.upstream import Upstream
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import Format
from callsmith.formats.huggingface.read import format_from_response_template
from callsmith.formats.inference.detect import detect, shows_reasoning
from callsmith.formats.inference.infer import Inferred, infer
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.prompt.tool_prompt import TEMPLATE, ToolPrompt
from callsmith.models.local import LocalModel
from callsmith.models.plugins import load_presets
from callsmith.models.presets import Preset, preset_for
from callsmith.models.remote.model import RemoteModel, RemoteTraits, model_names
from callsmith.models.remote.providers import KEY_VARIABLE, RemoteSpec, api_key, parse_spec
from callsmith.models.tool_prompts import tool_prompt_named
from callsmith.models.traits import Traits, describe_local
from callsmith.models.weights.catalogue import Entry, catalogue, find_entry
from callsmith.models.weights.disk import find_file, find_path
from callsmith.models.weights.fetch import locate
from callsmith.models.weights.found import find_model, find_ollama_projector
from callsmith.models.weights.hub_names import CHECKPOINT_SCHEME, HUB_SCHEME, is_hub_address, parse
from callsmith.models.weights.measured import Measured, find_measured
from callsmith.wire.upstream.dialects import UpstreamDialect, dialect_named
from callsmith.wire.upstream.quirks import Quirks

_log = logging.getLogger(__name__)
FALLBACK = ("generic-xml", "hermes")  # for models that were never taught a format: the second one is read, too
WEIGHTS_SCHEME = "llama"  # the engine that opens GGUF files
_LONGEST_CONTEXT = 8192  # tokens, where the user does not ask for more: memory grows with it
_SCHEME = re.compile(r"[a-z][a-z0-9_-]+")  # two letters at least: `C:` is a drive


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """How a model writes: the format of its calls, formats it is also read in, and whether it may make several calls at once."""

    format: Format
    also: tuple[Format, ...] = ()
    parallel: bool = True


def resolve_format(
    chosen: str | None, template: Template | None, preset: Preset | None, response_template: Json = None
) -> FormatChoice | None:
    """The format the user has chosen, else the one the template shows, else that of the preset; None if nothing shows one.

    `template` is None where it shows nothing of the model: it is one of ours, or a guess. `response_template` is Hugging Face's
    description of the model's answers, where it comes with one: it counts where no known format reads the template as well.
    """
    if chosen:
        return FormatChoice(format_named(chosen))
    described = _described_format(response_template)
    if template and (evidence := detect(template, (*formats().values(), *described))):
        return FormatChoice(evidence.format)
    if described:
        return FormatChoice(described[0])
    if template and isinstance(inferred := infer(template), Inferred):
        return FormatChoice(inferred.format)
    return FormatChoice(preset.formats[0], preset.formats[1:], preset.parallel) if preset else None


def _described_format(response_template: Json) -> tuple[Format, ...]:
    """The format of a response template, if there is one; what no format can express is said, and not used."""
    if response_template is None:
        return ()
    try:
        return (format_from_response_template(response_template),)
    except UsageError as error:
        _log.warning("the model's response_template is not used: %s", error)
        return ()


@check_fields
@dataclass(frozen=True, slots=True)
class Options(EngineOptions):
    """What a user may set; None leaves it to the catalogue, the preset or the model file.

    `gpu_layers` is how many layers of the model are on GPUs: None is as many as fit, 0 none. `projector` is the file that reads
    images for it. `live` is how many requests are
    decoded at once, `queue` how many more may wait. `auto_guarded` constrains calls also where the model may choose to make them:
    it still may answer with text, but a call it begins is valid. `in_reasoning` says whether calls inside the reasoning are
    recovered where there is none outside, or ignored. For a model of another server, `api` is the dialect in which it is asked,
    and `repair` whether calls that it writes as text are read ("auto": as its provider needs it). `tool_prompt` names how tools
    are put to the model, `call_bias` makes calls likelier, or below 0 rarer, where it is decided whether to call (in log odds).
    """

    format: str | None = None
    template: Path | None = None
    policy: ChoicePolicy | None = None
    live: int | None = None
    queue: int | None = None
    auto_guarded: bool | None = None
    in_reasoning: InReasoning | None = None
    api: str | None = None
    repair: Repair | None = None
    tool_prompt: str | None = None
    call_bias: float | None = None


def open_model(spec: str, options: Options = Options()) -> OpenedModel:
    """Open a catalogue name, a GGUF file, a folder, a model on a hub (`hf:org/repo:Q4_K_M`) or one that another program has on
    this machine (`qwen3:4b`), the `scheme:rest` of any engine, or a model of another server: `provider:model`,
    `http://host/v1#model`."""
    check_argument("spec", spec, str)
    check_argument("options", options, Options)
    load_presets()
    remote = parse_spec(spec)
    return open_local(spec, options) if remote is None else _open_remote(remote, options)


def open_local(spec: str, options: Options = Options()) -> LocalModel:
    """Open a model whose tokens an engine of ours generates: all that `open_model` opens but models of other servers."""
    load_presets()
    engine = _engine(spec, options)
    try:
        return LocalModel(engine, *_parts(spec, options, engine.info))
    except BaseException:
        with ThreadPoolExecutor(1, "callsmith-close") as thread:  # here an event loop may be running
            thread.submit(asyncio.run, engine.close()).result()
        raise


def with_tool_prompt(model: LocalModel, spec: str, options: Options, name: str) -> LocalModel:
    """The same model, with its weights shared and tools put to it in another way."""
    return LocalModel(model.engine, *_parts(spec, replace(options, tool_prompt=name), model.engine.info))


def describe_model(spec: str, options: Options = Options()) -> ModelInfo:
    """What is known of a model that is not opened: what its file or its name says. Nothing is loaded, and no server is asked."""
    load_presets()
    remote = parse_spec(spec)
    if remote is not None:
        if not remote.model:
            return ModelInfo(format="native", context=options.context)
        return replace(_open_remote(remote, options).info, count=None, upstreams=None)  # that nobody will close
    scheme, rest, engine_options = _engine_options(spec, options)
    describe = find_description(scheme)
    engine = describe(rest, **accepted_options(describe, engine_options)) if describe else EngineInfo(context=options.context)
    return describe_local(engine, *_parts(spec, options, engine))


def _parts(spec: str, options: Options, info: EngineInfo) -> tuple[Format, Template, Traits]:
    """What makes a model of an engine: its format, its template, and what else is known of it."""
    entry = catalogue().get(spec) or find_entry(info.name, info.weights.size)
    name = parse(spec)
    called = Path(spec).stem if spec.lower().endswith(".gguf") else name.repo.rpartition("/")[2] if name else ""
    preset = None if entry else preset_for(info.name, called)
    known = entry or preset
    measured = find_measured(info.name, info.weights.size)  # counts like a preset, and before one
    source = (_read_template(options.template) if options.template else entry and entry.template) or info.template
    template = Template(
        source or (preset and preset.template) or CHATML,
        bos=info.bos,
        eos=info.eos,
        now=lambda form: datetime.now().astimezone().strftime(form),
    )
    choice = _choose_format(options, entry, preset, template if source else None, info.response_template)
    tool_prompt = _tool_prompt(options, measured, known)
    if not tool_prompt.is_template:
        thinks = (choice.format.thinks,) if choice.format.thinks else ()
        prompt_format = format_named(tool_prompt.format)
        choice = FormatChoice(replace(prompt_format, parts=(*thinks, *prompt_format.parts)))
    guarded = measured or known
    traits = Traits(
        also=choice.also,
        sampling=entry.sampling if entry else Sampling(),
        parallel=choice.parallel,
        thinks=shows_reasoning(choice.format, template.source),
        policy=options.policy or (measured and measured.policy) or (known and known.policy) or "auto",
        in_reasoning=options.in_reasoning or (known.in_reasoning if known else "recover"),
        guards=known.guards if known else (),
        auto_guarded=bool(guarded and guarded.auto_guarded) if options.auto_guarded is None else options.auto_guarded,
        tool_prompt=tool_prompt,
        call_bias=options.call_bias or 0.0,
    )
    return choice.format, template, traits


def _read_template(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}", field="llm.chat_template") from error


def _tool_prompt(options: Options, measured: Measured | None, known: Entry | Preset | None) -> ToolPrompt:
    """How tools are put to the model: as the user says, else as was measured, else as is known of it.

    Who chooses a format gets the template's own way, for a tool prompt has its format. A threshold counts for the prompt that it
    was measured with."""
    if options.tool_prompt is None and options.format:
        return TEMPLATE
    sources = [item for item in (measured, known) if item is not None and item.tool_prompt]
    name = options.tool_prompt or next((source.tool_prompt for source in sources), TEMPLATE.name)
    threshold = next((source.threshold for source in sources if source.tool_prompt == name), None)
    tool_prompt = tool_prompt_named(name)
    return tool_prompt if threshold is None else replace(tool_prompt, threshold=threshold)


def _open_remote(spec: RemoteSpec, options: Options) -> RemoteModel:
    provider, known = spec.provider, preset_for(spec.model)
    dialect = dialect_named(options.api or provider.api)
    quirks = provider.quirks.get(dialect.name, Quirks())
    if options.repair in ("on", "off"):
        quirks = replace(quirks, repairs=options.repair == "on")
    upstream = Upstream(
        [dialect.base_url(url) for url in spec.urls],
        headers=dialect.headers(api_key(provider)),
        shows_session=spec.is_own,
        probe=dialect.list_path,
    )
    format = options.format or next(iter(provider.formats), None)
    return RemoteModel(
        upstream,
        dialect,
        spec.model or _only_model(upstream, dialect),
        quirks,
        RemoteTraits(
            provider=provider.name,
            key_variable=provider.key or KEY_VARIABLE,
            format=format_named(format) if format else None,
            context=options.context,
            policy=options.policy or (known and known.policy) or "auto",
            in_reasoning=options.in_reasoning or (known.in_reasoning if known else "recover"),
            guards=known.guards if known else (),
            tool_prompt=tool_prompt_named(options.tool_prompt) if options.tool_prompt else TEMPLATE,
        ),
    )


def _only_model(upstream: Upstream, dialect: UpstreamDialect) -> str:
    """The model of a server that has one."""
    names = model_names(upstream.wait_for(lambda: upstream.get(dialect.list_path)))
    if len(names) != 1:
        listed = ", ".join(names[:20]) or "none"
        raise UsageError(f"{upstream.url} has {len(names)} models ({listed}): name one, as in {upstream.url}#NAME", field="model")
    return names[0]


def split_spec(spec: str) -> tuple[str, str]:
    """The scheme of an engine and the rest: `("scripted", "Hello")`; weights, however they are named, are `("llama", name)`."""
    scheme, colon, rest = spec.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme) or scheme == HUB_SCHEME or is_hub_address(spec):
        return WEIGHTS_SCHEME, spec
    try:
        find_engine(scheme)
    except UnknownName:
        if find_file(spec) or find_model(spec):
            return WEIGHTS_SCHEME, spec
        raise
    return scheme, rest


def find_weights(spec: str) -> tuple[str, str]:
    """The scheme of an engine and what it is to open, with the path of the weights where it opens files. Weights that are not on
    this machine are `Unavailable`."""
    scheme, rest = split_spec(spec)
    if scheme == WEIGHTS_SCHEME:
        path = locate(rest)
        return CHECKPOINT_SCHEME if path.is_dir() else scheme, str(path)
    if scheme == CHECKPOINT_SCHEME and find_path(rest) is None and parse(spec):
        return scheme, str(locate(spec))
    return scheme, rest


def _engine(spec: str, options: Options) -> Engine:
    scheme, rest, engine_options = _engine_options(spec, options)
    open = find_engine(scheme)
    return open(rest, **accepted_options(open, engine_options))


def _engine_options(spec: str, options: Options) -> tuple[str, str, dict[str, object]]:
    """The scheme of an engine, what it is to open, and how."""
    scheme, rest = find_weights(spec)
    entry = catalogue().get(spec)
    context = options.context or (min(entry.context, _LONGEST_CONTEXT) if entry else None)
    known = find_ollama_projector(Path(rest)) if scheme == WEIGHTS_SCHEME else None
    own = {"context": context, "live": options.live, "queue": options.queue, "known_projector": known}
    return scheme, rest, {**options.for_engine(), **own}


def _choose_format(
    options: Options, entry: Entry | None, preset: Preset | None, template: Template | None, response_template: Json
) -> FormatChoice:
    """The format: the user's, else the catalogue's, else what is found of the model."""
    if entry:
        also = tuple(format_named(name) for name in entry.also)
        return FormatChoice(format_named(options.format or entry.format), also, entry.parallel)
    first, *also = map(format_named, FALLBACK)
    return resolve_format(options.format, template, preset, response_template) or FormatChoice(first, tuple(also))
