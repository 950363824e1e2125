"""`callsmith grammar`: the grammar that keeps a model's calls valid."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsmith.cli.inputs.completion import complete_formats
from callsmith.cli.inputs.options import FormatFileOption, example, find_format, named_format
from callsmith.cli.terminal.output import echo, echo_lines
from callsmith.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from callsmith.grammar.nodes import Grammar

app = typer.Typer()


class GrammarTarget(StrEnum):
    """What a grammar can be written as."""

    lark = "lark"
    gbnf = "gbnf"
    vllm = "vllm"
    sglang = "sglang"
    llama_server = "llama-server"


@app.command(
    epilog=example(
        "callsmith grammar --tools tools.json --target gbnf", "callsmith grammar --jsonl schemas.jsonl > verdicts.jsonl"
    )
)
def grammar(
    lines: Annotated[
        typer.FileBinaryRead | None,
        typer.Argument(metavar="[FILE]", help="With --jsonl: the lines. Default, and -: standard input."),
    ] = None,
    tools: Annotated[Path | None, typer.Option("--tools", exists=True, dir_okay=False, help="The tools, as JSON.")] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            autocompletion=complete_formats,
            help="How the model writes: see `callsmith formats`. Default: hermes.",
        ),
    ] = None,
    format_file: FormatFileOption = None,
    choice: Annotated[str, typer.Option("--choice", help="required, auto, or the name of the one tool to call.")] = "required",
    no_parallel: Annotated[bool, typer.Option("--no-parallel", help="One call only.")] = False,
    target: Annotated[
        GrammarTarget,
        typer.Option(
            "--target",
            help="lark is llguidance's language, gbnf llama.cpp's and xgrammar's; a server: the fields of its requests.",
        ),
    ] = GrammarTarget.lark,
    report: Annotated[
        bool, typer.Option("--report", help="List what the grammar does not enforce, instead of printing it.")
    ] = False,
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl", help='Instead: read lines {"schema": …, "instances": […]}, and tell of each what its grammar accepts.'
        ),
    ] = False,
    as_written: Annotated[
        bool,
        typer.Option("--as-written", help="With --jsonl: take schemas at their word: objects open, members in any order."),
    ] = False,
) -> None:
    """Print the grammar of these tools in a format; or try grammars of schemas on instances."""
    if jsonl:
        _judge(lines or typer.get_binary_stream("stdin"), as_written)
        return
    if as_written:
        raise UsageError("--as-written goes with --jsonl: arguments of tools are what their schema declares", field="as_written")
    if tools is None or lines is not None:
        raise UsageError("wants tools (--tools tools.json), or schemas to try (--jsonl lines.jsonl)", field="tools")
    from callsmith.cli.inputs.tool_files import tools_in
    from callsmith.core.schema import check_schema
    from callsmith.core.values import Choice
    from callsmith.grammar.calls import grammar_for

    declared = tools_in(tools)
    if not declared:
        raise UsageError(f"there are no tools in {tools}", field="tools")
    for tool in declared:
        check_schema(tool.parameters, f"{tool.name}.parameters")
    wanted = Choice(choice) if choice == "auto" or choice == "required" else Choice.only(choice)
    built = grammar_for(find_format(named_format(format, format_file) or "hermes"), declared, wanted, parallel=not no_parallel)
    assert built is not None  # there are tools to choose from
    text, unenforced = _write_for(built, target)
    if report:
        _report(unenforced)
        return
    echo_lines(text, nl=False)
    if unenforced:
        echo(f"note: {len(unenforced)} keyword(s) are not enforced by the grammar; --report lists them", err=True)


def _write_for(calls_grammar: "Grammar", target: GrammarTarget) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The grammar as the target wants it, and what it does not enforce."""
    from callsmith.grammar.targets.gbnf import to_gbnf
    from callsmith.grammar.targets.lark import to_lark
    from callsmith.grammar.targets.upstream import for_llama_server, for_sglang, for_vllm

    match target:
        case GrammarTarget.lark:
            return to_lark(calls_grammar), calls_grammar.unenforced
        case GrammarTarget.gbnf:
            gbnf = to_gbnf(calls_grammar)
            return gbnf.text, gbnf.unenforced
        case GrammarTarget.vllm:
            fields = for_vllm(calls_grammar)
        case GrammarTarget.sglang:
            fields = for_sglang(calls_grammar)
        case GrammarTarget.llama_server:
            fields = for_llama_server(calls_grammar)
    return json.dumps(fields.body, indent=2, ensure_ascii=False) + "\n", fields.unenforced


def _report(unenforced: tuple[tuple[str, str], ...]) -> None:
    if not unenforced:
        echo("The grammar enforces every keyword of the schemas.")
        return
    echo("Not enforced by the grammar, and validated after generation instead:")
    for path, keyword in unenforced:
        echo(f"  {path}  {keyword}")


def _judge(lines: "Iterable[bytes]", as_written: bool) -> None:
    """A verdict for each line, as it comes; on a terminal, the count so far is shown."""
    from callsmith.models.schema_judge import SchemaJudge

    watched = sys.stderr.isatty() and not sys.stdout.isatty()
    with SchemaJudge(as_written=as_written) as judge:
        for count, verdict in enumerate(judge.judge_lines(lines), 1):
            sys.stdout.write(json.dumps(verdict.as_json()) + "\n")
            sys.stdout.flush()
            if watched:
                sys.stderr.write(f"\r{count} schemas")
    if watched:
        echo(err=True)
