"""From what a user writes behind `--model` to a model that answers."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from callsmith.core.values import Sampling
from callsmith.engines import Engine, open_engine
from callsmith.formats import format_named, formats
from callsmith.formats.detect import detect, thinks
from callsmith.formats.layout import Format
from callsmith.formats.template import CHATML, Template
from callsmith.models.catalogue import Entry, catalogue
from callsmith.models.local import LocalModel
from callsmith.models.weights import locate

FALLBACK = "generic-xml"  # for models that were never taught a format of their own


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may decide instead of the catalogue or the model file."""

    format: str | None = None
    template: Path | None = None
    context: int | None = None
    threads: int | None = None


def open_model(spec: str, options: Options = Options()) -> LocalModel:
    """A catalogue name, a GGUF file, `org/repo/file.gguf` of a hub, or an engine's own `scheme:rest`."""
    entry = catalogue().get(spec)
    engine = _engine(spec, entry, options)
    source = _template_source(engine, entry, options)
    bos, eos = getattr(engine, "bos", ""), getattr(engine, "eos", "")
    template = Template(source, bos=bos, eos=eos, now=lambda form: datetime.now().astimezone().strftime(form))
    format = _format(template, entry, options)
    return LocalModel(
        engine,
        format,
        template,
        also=[format_named(name) for name in entry.also] if entry else (),
        sampling=entry.sampling if entry else Sampling(),
        parallel=entry.parallel if entry else True,
        thinks=thinks(format, template.source),
    )


def _engine(spec: str, entry: Entry | None, options: Options) -> Engine:
    if spec.startswith("scripted:"):
        return open_engine(spec)
    context = options.context or min(entry.context if entry else 8192, 8192)
    return open_engine(f"llama:{locate(spec.removeprefix('llama:'))}", context=context, threads=options.threads)


def _template_source(engine: Engine, entry: Entry | None, options: Options) -> str:
    if options.template:
        return options.template.read_text(encoding="utf-8")
    return (entry and entry.template) or engine.template or CHATML


def _format(template: Template, entry: Entry | None, options: Options) -> Format:
    if options.format:
        return format_named(options.format)
    if entry:
        return format_named(entry.format)
    found = detect(template, formats().values())
    return found.format if found else format_named(FALLBACK)
