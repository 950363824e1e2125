"""The real chat templates of the corpus, each compiled once."""

import os
from functools import cache
from pathlib import Path

import pytest

from callsmith.formats import formats
from callsmith.formats.inference.detect import Evidence, detect
from callsmith.formats.prompt.template import Template, fixed_date

ROOT = Path(__file__).parents[2]
CORPUS = Path(os.environ.get("CALLSMITH_CORPUS", ROOT.parent / "shared" / "data")) / "chat_templates"
REAL = sorted(CORPUS.glob("*.jinja"))
needs_corpus = pytest.mark.skipif(
    not REAL, reason=f"no chat templates in {CORPUS}; set CALLSMITH_CORPUS to the folder above them"
)


def names() -> set[str]:
    """The names of all templates there are."""
    return {path.stem for path in REAL}


@cache
def template(name: str) -> Template:
    """The template of this name."""
    return Template((CORPUS / f"{name}.jinja").read_text("utf-8"), now=fixed_date)


@cache
def real(path: Path) -> Template:
    """The template of a file, with tokens for the beginning and the end of a text."""
    return Template(path.read_text("utf-8"), bos="<s>", eos="</s>", now=fixed_date)


@cache
def detected(path: Path) -> Evidence | None:
    """The format that the template of a file speaks, if any."""
    return detect(real(path), formats().values())
