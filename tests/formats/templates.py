"""The real chat templates of the corpus, each made ready once."""

import os
from functools import cache
from pathlib import Path

import pytest

from callsmith.formats.prompt.template import Template, fixed_date

ROOT = Path(__file__).parents[2]
CORPUS = Path(os.environ.get("CALLSMITH_CORPUS", ROOT.parent / "shared" / "data")) / "chat_templates"
needs_corpus = pytest.mark.skipif(
    not any(CORPUS.glob("*.jinja")), reason=f"no chat templates in {CORPUS}; set CALLSMITH_CORPUS to the folder above them"
)


def names() -> set[str]:
    """The names of all templates there are."""
    return {path.stem for path in CORPUS.glob("*.jinja")}


@cache
def template(name: str) -> Template:
    """One of them."""
    return Template((CORPUS / f"{name}.jinja").read_text("utf-8"), now=fixed_date)
