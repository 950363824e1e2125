"""What a shell completes behind options: names of models, formats and tools. It is fast, and runs nobody's code."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path


def complete_models(incomplete: str) -> list[str]:
    """Names of the catalogue and of models on this machine, GGUF files and folders."""
    from callsmith.models.weights.found import list_model_names

    return [*_starting(list_model_names(), incomplete), *_paths(incomplete, ".gguf")]


def complete_formats(incomplete: str) -> list[str]:
    """Names of formats."""
    from callsmith.formats import formats

    return _starting(formats(), incomplete)


def complete_tools(incomplete: str) -> list[str]:
    """What --tools takes: demo, and the modules that are here."""
    return _starting(["demo", *sorted(path.stem for path in Path().glob("*.py") if path.stem.isidentifier())], incomplete)


def complete_choice(incomplete: str) -> list[str]:
    """What --tool-choice takes, with the names of the demonstration tools."""
    from callsmith.cli.inputs.demo_tools import TOOLS

    return _starting(["auto", "required", "none", *(tool.__name__ for tool in TOOLS)], incomplete)


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _paths(incomplete: str, suffix: str) -> list[str]:
    folder, slash, start = incomplete.rpartition("/")
    try:
        paths = sorted(Path(folder + slash or ".").iterdir())
    except OSError:
        return []
    matching = [path for path in paths if path.name.startswith(start) and not path.name.startswith(".")]
    return [f"{folder}{slash}{path.name}{'/' * path.is_dir()}" for path in matching if path.is_dir() or path.suffix == suffix]


# By the full name of the setting whose option it is.
COMPLETIONS: Mapping[str, Callable[[str], list[str]]] = {
    "llm.model": complete_models,
    "llm.format": complete_formats,
    "llm.tools": complete_tools,
}
