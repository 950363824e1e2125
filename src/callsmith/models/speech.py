"""`find_speech`: in which format a model writes its calls, found from what is known of it."""

import logging
from dataclasses import dataclass

from callsmith.core.errors import UsageError
from callsmith.core.values import Json
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import Format
from callsmith.formats.huggingface.read import format_from_response_template
from callsmith.formats.inference.detect import detect
from callsmith.formats.inference.infer import Inferred, infer
from callsmith.formats.prompt.template import Template
from callsmith.models.presets import Preset

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Speech:
    """How a model writes: the format of its calls, formats it is also read in, and whether it may make several calls at once."""

    format: Format
    also: tuple[Format, ...] = ()
    parallel: bool = True


def find_speech(
    chosen: str | None, template: Template | None, preset: Preset | None, response_template: Json = None
) -> Speech | None:
    """The format the user has chosen, else the one the template shows, else that of the preset; None if nothing shows one.

    `template` is None where it shows nothing of the model: it is one of ours, or a guess. `response_template` is Hugging Face's
    description of the model's answers, where it comes with one: it counts where no known format reads the template as well.
    """
    if chosen:
        return Speech(format_named(chosen))
    described = _described_format(response_template)
    if template and (found := detect(template, (*formats().values(), *described))):
        return Speech(found.format)
    if described:
        return Speech(described[0])
    if template and isinstance(inferred := infer(template), Inferred):
        return Speech(inferred.format)
    return Speech(preset.formats[0], preset.formats[1:], preset.parallel) if preset else None


def _described_format(response_template: Json) -> tuple[Format, ...]:
    """The format of a response template, if there is one; what no format can express is said, and not used."""
    if response_template is None:
        return ()
    try:
        return (format_from_response_template(response_template),)
    except UsageError as error:
        _log.warning("the model's response_template is not used: %s", error)
        return ()
