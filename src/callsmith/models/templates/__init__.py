"""Chat templates of our own: for weights that have none, or whose own is wanting."""

from importlib.resources import files

from callsmith.core.errors import UnknownName

_SUFFIX = ".jinja"


def template_named(name: str) -> str:
    """The source of a template by its name: `llama3.1`."""
    known = {file.name.removesuffix(_SUFFIX): file for file in files(__name__).iterdir() if file.name.endswith(_SUFFIX)}
    if name not in known:
        raise UnknownName("chat template", name, known)
    return known[name].read_text(encoding="utf-8")
