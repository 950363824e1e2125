"""How tools are put to models: one TOML file a way. Those of the user are in the config folder, in `tool_prompts`.

A file's name is the name of the tool prompt; one of the user's replaces ours of the same name.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.serialize import load
from callsmith.core.types.tables import parse_toml
from callsmith.formats import format_named
from callsmith.formats.prompt.tool_prompt import ToolPrompt
from callsmith.models.plugins import load_formats, user_files

_SUFFIX = ".toml"


def tool_prompt_named(name: str) -> ToolPrompt:
    """The tool prompt of this name."""
    if name not in (known := tool_prompts()):
        raise UnknownName("tool prompt", name, known, field="tool_prompt")
    return known[name]


@cache
def tool_prompts() -> Mapping[str, ToolPrompt]:
    """Every tool prompt by its name. Those of the user may be in formats of the user's."""
    load_formats()
    ours = sorted((file for file in files(__name__).iterdir() if file.name.endswith(_SUFFIX)), key=lambda file: file.name)
    packaged = {
        name: read_tool_prompt(file.read_text("utf-8"), name) for file in ours for name in [file.name.removesuffix(_SUFFIX)]
    }
    return packaged | {path.stem: read_tool_prompt(text, path.stem, str(path)) for path, text in user_files("tool_prompts")}


def read_tool_prompt(text: str, name: str, place: str = "") -> ToolPrompt:
    """The tool prompt in a TOML text. What does not exist is an error here, not when it is needed."""
    try:
        row = parse_toml(text)
        if "name" in row:
            raise UsageError("`name` is not for the file to say: it is what the file is called", field="name")
        prompt = load(ToolPrompt, {"name": name, **row})
        if prompt.format:
            format_named(prompt.format)
    except UsageError as error:
        raise UsageError(f"{place or f'tool prompt {name!r}'}: {error}") from error
    return prompt
