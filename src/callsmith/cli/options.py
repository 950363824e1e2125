"""Options that several commands have."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

ModelOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        envvar="CALLSMITH_MODEL",
        help="A name of `callsmith models`, a GGUF file, org/repo/file.gguf on a hub, or scripted:TEXT. "
        "Default: the first of the catalogue.",
        show_default=False,
    ),
]
FormatOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--format", "-f", help="How the model writes calls, if not as its template shows.", show_default=False),
]
TemplateOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--chat-template", exists=True, dir_okay=False, help="A chat template instead of the model's own."),
]
ContextOption: TypeAlias = Annotated[
    int | None, typer.Option("--context", min=1, help="Tokens that prompt and answer may have together.", show_default=False)
]
ThreadsOption: TypeAlias = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads to compute with.", show_default=False)
]
ToolsOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--tools", help="demo, or module:attribute, or a module with @tool functions.", show_default=False),
]
