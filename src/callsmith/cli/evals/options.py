"""Options that `callsmith eval` and `callsmith tune` share."""

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

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
ContextTokens: TypeAlias = Annotated[int | None, typer.Option("--context", min=1, help="Tokens of prompt and answer together.")]
Threads: TypeAlias = Annotated[int | None, typer.Option("--threads", min=1, help="Threads of the engine.")]
GpuLayers: TypeAlias = Annotated[int | None, typer.Option("--gpu-layers", min=0, help="Layers on GPUs. Default: all that fit.")]


def split_names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]
