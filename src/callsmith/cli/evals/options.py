"""Options that `callsmith eval` and `callsmith tune` share."""

from collections.abc import Callable
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from callsmith.cli.inputs.setting_options import make_parameter
from callsmith.core.options import EngineOptions, options_in

QUICK: Final = 4  # cases of each category
AT_ONCE: Final = 8  # cases

CasesFile: TypeAlias = Annotated[
    Path | None, typer.Option("--cases", exists=True, dir_okay=False, help="Cases of your own. Default: the benchmark's.")
]
Categories: TypeAlias = Annotated[str, typer.Option("--categories", help="Only these, with commas between them.")]
PerCategory: TypeAlias = Annotated[int | None, typer.Option("--per-category", min=1, help="A sample of so many of each.")]
Quick: TypeAlias = Annotated[bool, typer.Option("--quick", help=f"A sample of {QUICK} of each category.")]
Out: TypeAlias = Annotated[Path, typer.Option("--out", file_okay=False, help="Where results go; those that are there are kept.")]
Concurrency: TypeAlias = Annotated[int | None, typer.Option("--concurrency", min=1, help=f"Cases at once. Default: {AT_ONCE}.")]
MaxTokens: TypeAlias = Annotated[int, typer.Option("--max-tokens", min=1, help="Tokens that one answer may have.")]
Seconds: TypeAlias = Annotated[float, typer.Option("--timeout", min=1, help="Seconds that one case may take.")]


def with_engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of engines; it gets them as its argument `engine`, by their names."""
    options = {option.name.replace(".", "__"): option for option in options_in("engine", EngineOptions)}
    own = [parameter for parameter in signature(command).parameters.values() if parameter.name != "engine"]

    @wraps(command)
    def run(**arguments: Any) -> None:
        engine = {option.name.partition(".")[2]: arguments.pop(name) for name, option in options.items()}
        command(**arguments, engine=engine)

    run.__signature__ = Signature([*own, *(make_parameter(name, option) for name, option in options.items())])  # pyright: ignore[reportAttributeAccessIssue]
    return run


def split_names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]
