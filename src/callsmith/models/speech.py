"""`find_speech`: in which format a model writes its calls, found from what is known of it."""

from dataclasses import dataclass

from callsmith.formats import format_named, formats
from callsmith.formats.algebra import Format
from callsmith.formats.inference.detect import detect
from callsmith.formats.inference.infer import Inferred, infer
from callsmith.formats.prompt.template import Template
from callsmith.models.presets import Preset


@dataclass(frozen=True, slots=True)
class Speech:
    """How a model writes: the format of its calls, formats it is also read in, and whether it may make several calls at once."""

    format: Format
    also: tuple[Format, ...] = ()
    parallel: bool = True


def find_speech(chosen: str | None, template: Template | None, preset: Preset | None) -> Speech | None:
    """The format the user has chosen, else the one the template shows, else that of the preset; None if nothing shows one.

    `template` is None where it shows nothing of the model: it is one of ours, or a guess.
    """
    if chosen:
        return Speech(format_named(chosen))
    if template and (found := detect(template, formats().values())):
        return Speech(found.format)
    if template and isinstance(inferred := infer(template), Inferred):
        return Speech(inferred.format)
    return Speech(preset.formats[0], preset.formats[1:], preset.parallel) if preset else None
