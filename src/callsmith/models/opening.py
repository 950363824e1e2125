"""From what a user writes behind `--model` to a model that answers."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from callsmith.core.values import ChoicePolicy, Sampling
from callsmith.engines import Engine, open_engine, plugged
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import Format
from callsmith.formats.inference.detect import detect, shows_reasoning
from callsmith.formats.inference.infer import Inferred, infer
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel, Traits
from callsmith.models.plugins import load_formats
from callsmith.models.presets import preset_for
from callsmith.models.weights.catalogue import Entry, catalogue
from callsmith.models.weights.fetch import locate

FALLBACK = "generic-xml"  # for models that were never taught a format of their own


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may decide instead of the catalogue or the model file.

    `live` is how many answers are made at once, `queue` how many more may wait.
    """

    format: str | None = None
    template: Path | None = None
    context: int | None = None
    threads: int | None = None
    policy: ChoicePolicy | None = None
    live: int | None = None
    queue: int | None = None


def open_model(spec: str, options: Options = Options()) -> LocalModel:
    """A catalogue name, a GGUF file, `org/repo/file.gguf` of a hub, or an engine's own `scheme:rest`."""
    load_formats()
    entry = catalogue().get(spec)
    engine = _engine(spec, entry, options)
    source = _template_source(engine, entry, options)
    bos, eos = getattr(engine, "bos", ""), getattr(engine, "eos", "")
    template = Template(source, bos=bos, eos=eos, now=lambda form: datetime.now().astimezone().strftime(form))
    names = (getattr(engine, "name", ""), _file_name(spec))
    known = entry or preset_for(*names)
    speech = _speech(template, entry, options, names)
    return LocalModel(
        engine,
        speech.format,
        template,
        Traits(
            also=speech.also,
            sampling=entry.sampling if entry else Sampling(),
            parallel=speech.parallel,
            thinks=shows_reasoning(speech.format, template.source),
            policy=options.policy or (known and known.policy) or "auto",
            guards=known.guards if known else (),
        ),
    )


def _engine(spec: str, entry: Entry | None, options: Options) -> Engine:
    scheme, colon, _ = spec.partition(":")
    if colon and (scheme == "scripted" or scheme in plugged()):
        return open_engine(spec)
    context = options.context or min(entry.context if entry else 8192, 8192)
    given = {"live": options.live, "queue": options.queue}
    more = {name: value for name, value in given.items() if value is not None}
    return open_engine(f"llama:{locate(spec.removeprefix('llama:'))}", context=context, threads=options.threads, **more)


def _file_name(spec: str) -> str:
    return Path(spec).stem if spec.lower().endswith(".gguf") else ""


def _template_source(engine: Engine, entry: Entry | None, options: Options) -> str:
    if options.template:
        return options.template.read_text(encoding="utf-8")
    return (entry and entry.template) or engine.template or CHATML


@dataclass(frozen=True, slots=True)
class _Speech:
    """How a model writes: the formats it is held to and read in, and whether it may make several calls at once."""

    format: Format
    also: tuple[Format, ...] = ()
    parallel: bool = True


def _speech(template: Template, entry: Entry | None, options: Options, names: tuple[str, ...]) -> _Speech:
    """What the user says, else the catalogue; else what the template shows, and where it shows nothing, what the names say."""
    if entry:
        also = tuple(format_named(name) for name in entry.also)
        return _Speech(format_named(options.format or entry.format), also, entry.parallel)
    if options.format:
        return _Speech(format_named(options.format))
    if found := detect(template, formats().values()):
        return _Speech(found.format)
    match infer(template):
        case Inferred(format=format):
            return _Speech(format)
        case _:
            preset = preset_for(*names)
            return _Speech(preset.formats[0], preset.formats[1:], preset.parallel) if preset else _Speech(format_named(FALLBACK))
