"""`callsmith grammar`: the grammar that keeps a model's calls valid."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from callsmith.cli.options import FormatFileOption, find_format, named_format
from callsmith.core.errors import UsageError


class Target(StrEnum):
    """The grammar languages that can be written."""

    lark = "lark"


def grammar(
    tools: Annotated[Path, typer.Option("--tools", exists=True, dir_okay=False, help="The tools, as JSON.")],
    format: Annotated[
        str | None, typer.Option("--format", "-f", help="How the model writes: see `callsmith formats`. Default: hermes.")
    ] = None,
    format_file: FormatFileOption = None,
    choice: Annotated[str, typer.Option("--choice", help="required, auto, or the name of the one tool to call.")] = "required",
    no_parallel: Annotated[bool, typer.Option("--no-parallel", help="One call only.")] = False,
    target: Annotated[Target, typer.Option("--target", help="The grammar's language: lark is llguidance's.")] = Target.lark,
    report: Annotated[
        bool, typer.Option("--report", help="List what the grammar does not enforce, instead of printing it.")
    ] = False,
) -> None:
    """Print the grammar of these tools in a format."""
    from callsmith.cli.tool_files import tools_in
    from callsmith.core.schema import check_schema
    from callsmith.core.values import Choice
    from callsmith.grammar.calls import grammar_for
    from callsmith.grammar.lark import to_lark

    declared = tools_in(tools)
    if not declared:
        raise UsageError(f"there are no tools in {tools}", field="tools")
    for tool in declared:
        check_schema(tool.parameters, f"{tool.name}.parameters")
    wanted = Choice(choice) if choice == "auto" or choice == "required" else Choice.only(choice)
    made = grammar_for(find_format(named_format(format, format_file) or "hermes"), declared, wanted, parallel=not no_parallel)
    assert made is not None  # there are tools to choose from
    if report:
        _report(made.unenforced)
        return
    typer.echo({Target.lark: to_lark}[target](made), nl=False)
    if made.unenforced:
        typer.echo(f"note: {len(made.unenforced)} keyword(s) are not enforced by the grammar; --report lists them", err=True)


def _report(unenforced: tuple[tuple[str, str], ...]) -> None:
    if not unenforced:
        typer.echo("The grammar enforces every keyword of the schemas.")
        return
    typer.echo("Not enforced by the grammar, and validated after generation instead:")
    for path, keyword in unenforced:
        typer.echo(f"  {path}  {keyword}")
