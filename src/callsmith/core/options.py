"""Fields that have a command-line option, and the options of engines: declared once, as fields of a value.

An option of engines is a field of `EngineOptions` and a parameter of the `open` functions that take it. `Options`, the settings
`[llm]` and `[models.NAME]`, environment variables and the flags of all commands that open models follow.
"""

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, TypeAlias, get_type_hints

DefaultModel: TypeAlias = Literal["ask", "best", "embedded"]  # what is taken where no model is named


@dataclass(frozen=True, slots=True)
class Flag:
    """The command-line option of a setting: its spellings, the long one first, and what its values may be.

    The option of a setting that is true or false takes no value and sets the opposite of the default. One that has a `table`
    may be given several times: as NAME=VALUE it sets the same field of the entry NAME in that table.
    """

    names: tuple[str, ...]
    help: str
    minimum: float | None = None
    maximum: float | None = None
    is_file: bool = False
    must_exist: bool = False
    variable: str | None = None  # an environment variable that has the same effect
    table: str = ""


@dataclass(frozen=True, slots=True)
class SettingOption:
    """A setting that has a command-line option: its full name, its type, its default and the option."""

    name: str
    type: Any
    default: Any
    flag: Flag


def fields_in_order(kind: type) -> list[Field[Any]]:
    """The fields of a section; those of the class itself come before those it inherits."""
    return sorted(fields(kind), key=lambda declared: declared.name not in kind.__annotations__)


def options_in(section: str, kind: type) -> Iterator[SettingOption]:
    """The settings of a section that have an option."""
    hints = get_type_hints(kind)
    for item in fields_in_order(kind):
        if "flag" in item.metadata:
            yield SettingOption(f"{section}.{item.name}", hints[item.name], item.default, item.metadata["flag"])


def _option(name: str, minimum: float | None, help: str, *, is_file: bool = False) -> Any:
    return field(default=None, metadata={"flag": Flag((name,), help, minimum, is_file=is_file)})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What a user may say to engines; None leaves it to the engine. An engine takes those that its `open` has a parameter for."""

    context: int | None = _option("--context", 1, "Tokens that prompt and answer may have together.")
    threads: int | None = _option("--threads", 1, "Threads to compute with.")
    gpu_layers: int | None = _option(
        "--gpu-layers", 0, "Layers of the model on GPUs; 0: none. Default: as many as their memory holds."
    )

    projector: str | None = _option(
        "--projector",
        None,
        "The GGUF file that reads images for the model (mmproj-….gguf). Default: the one beside the model's file.",
        is_file=True,
    )

    def for_engine(self) -> dict[str, Any]:
        """The options by name."""
        return {item.name: getattr(self, item.name) for item in fields(EngineOptions)}
