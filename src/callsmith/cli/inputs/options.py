"""Options that several commands have."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from callsmith.core.errors import MissingExtra, UnknownName, UsageError

if TYPE_CHECKING:
    from callsmith.formats.algebra import Format
    from callsmith.server.settings import Llm

FormatFileOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--format-file",
        exists=True,
        dir_okay=False,
        help="A format of your own: TOML, or a tokenizer_config.json with a response_template.",
    ),
]
ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", exists=True, dir_okay=False, help="Settings as TOML. Default: callsmith.toml in the config folder."
    ),
]
SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting, as in --set server.request_seconds=60.", show_default=False),
]


def example(*lines: str) -> str:
    """The end of a help text: command lines, which are not wrapped."""
    return "\b\n" + "\n".join([f"Example{'s' if len(lines) > 1 else ''}:", *(f"  {line}" for line in lines)])


def make_group(name: str, help: str, *examples: str, needs_command: bool = False) -> typer.Typer:
    """A group of commands. `needs_command`: without one, its help is shown."""
    return typer.Typer(name=name, help=help, epilog=example(*examples), no_args_is_help=needs_command, rich_markup_mode=None)


def require_server() -> None:
    """Raise MissingExtra if the packages of the server are not installed."""
    if not all(map(find_spec, ("uvicorn", "starlette", "msgspec", "prometheus_client"))):
        raise MissingExtra("server", "the server")


AliasOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--alias",
        metavar="NAME=MODEL",
        help="Another name of a model, or a pattern of such names, as in --alias 'claude-*=big'.",
        show_default=False,
    ),
]


def pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """`["a.b=1"]` → `{"a.b": "1"}`."""
    texts = texts or []
    for text in texts:
        if "=" not in text:
            raise UsageError(f"{option} {text}: expected NAME=VALUE")
    return {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in texts)}


def named_format(name: str | None, file: Path | None) -> str | None:
    """The name of the format to use. One in a file of the user's own is registered first."""
    if file is None:
        return name
    from callsmith.models.plugins import register_file

    registered = register_file(file)
    return name or registered.name


def register_user_files(llm: "Llm") -> str | None:
    """Register the format and the presets in the files that the settings name; returns the name of the format to use."""
    format = named_format(llm.format, Path(llm.format_file) if llm.format_file else None)
    if llm.presets:
        from callsmith.models.plugins import register_presets_file

        register_presets_file(Path(llm.presets))
    return format


def alias_of(spec: str) -> str:
    """What a model is called when nobody says: its name in the catalogue, on a hub or at a server, its file's or its engine's."""
    from callsmith.models.opening import WEIGHTS_SCHEME, split_spec
    from callsmith.models.remote.providers import parse_spec
    from callsmith.models.weights.disk import find_path
    from callsmith.models.weights.found import PREFIXES
    from callsmith.models.weights.hub_models import hub_models
    from callsmith.models.weights.hub_names import parse

    if remote := parse_spec(spec):
        return remote.model or remote.provider.name or "remote"
    scheme, rest = split_spec(spec)
    if spec in hub_models():
        return spec
    if (name := parse(spec)) and not find_path(rest):
        return Path(name.file).stem if name.file else name.repo
    if scheme != WEIGHTS_SCHEME:
        return rest.rpartition("#")[2] if "://" in rest and "#" in rest else scheme
    program, _, called = rest.partition(":")
    if program in PREFIXES:
        return called
    return Path(rest.rpartition(":")[2]).stem if rest.endswith(".gguf") else Path(rest).name if find_path(rest) else rest


def find_format(name: str) -> "Format":
    """A format by its name. Plug-ins cannot take the names of others, so they are looked at only for names nobody else has."""
    from callsmith.formats import format_named

    try:
        return format_named(name)
    except UnknownName:
        from callsmith.models.plugins import load_formats

        load_formats()
        return format_named(name)
