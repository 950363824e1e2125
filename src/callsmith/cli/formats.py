"""`callsmith formats`: the formats that are known, which one a chat template speaks, and whether one of your own is sound."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callsmith.cli.inputs.completion import complete_formats, complete_models
from callsmith.cli.inputs.options import example, make_group
from callsmith.cli.terminal.output import echo, echo_json, echo_lines
from callsmith.core.errors import CallsmithError, UsageError

if TYPE_CHECKING:
    from callsmith.formats.algebra import Format
    from callsmith.formats.inference.infer import Inferred
    from callsmith.formats.prompt.template import Sources, Template

app = make_group("formats", "The formats models write calls in.", "callsmith formats", "callsmith formats show hermes")


@app.callback(invoke_without_command=True)
def list_formats(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False
) -> None:
    """List the formats, each with a call as it is written."""
    if context.invoked_subcommand:
        return
    rows = _rows()
    if as_json:
        echo_json(rows)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("format", "also called", "thinks", box=box.SIMPLE_HEAD, show_lines=True)
    table.add_column("a call", overflow="fold")
    for row in rows:
        aliases, thinks = ", ".join(row["aliases"]), "yes" if row["reasoning"] else ""
        table.add_row(Text(row["name"], "bold"), Text(aliases), thinks, Text(row["sample"]))
    Console().print(table)


@app.command("detect", epilog=example("callsmith formats detect template.jinja"))
def detect_format(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TEMPLATE_FILE|GGUF|MODEL",
            autocompletion=complete_models,
            help="A chat template, a GGUF file, or a model of the catalogue.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the evidence as JSON.")] = False,
    save: Annotated[Path | None, typer.Option("--save", dir_okay=False, help="Write the format to this TOML file.")] = None,
) -> None:
    """Find out which format a chat template speaks: it renders known calls, and every format tries to read them back.

    Where none can, one is worked out from what the template writes.
    """
    from callsmith.formats.toml.write import format_to_toml

    detection = _detect(_template(source), _name_for(save))
    if save:
        save.write_text(format_to_toml(detection.format), encoding="utf-8")
    if as_json:
        echo_json(detection.evidence | {"rendered": detection.rendered})
        return
    echo_lines(f"{detection.message}\nThe template wrote:")
    echo_lines("\n".join(f"  {line}" for line in detection.rendered.splitlines()))
    if "inferred" in detection.evidence and not save:
        echo_lines("\nKeep it with --save FILE.toml, and use it with --format-file FILE.toml.")


def _name_for(save: Path | None) -> str:
    """The name of a format that is saved in a file."""
    return save.stem.lower().replace("_", "-").replace(" ", "-") if save else "inferred"


@dataclass(frozen=True)
class _Detection:
    """A format that reads a template: what to say about it, and the text that it reads."""

    format: "Format"
    message: str
    evidence: dict[str, Any]
    rendered: str


def _detect(template: "Template", name: str) -> _Detection:
    from callsmith.formats import formats
    from callsmith.formats.inference.detect import detect
    from callsmith.formats.toml.write import format_to_toml
    from callsmith.models.plugins import load_formats

    load_formats()
    if match := detect(template, formats().values()):
        message = f"{match.format.name}\nIt reads back {match.found} of {match.expected} calls that the template was given"
        evidence = {"format": match.format.name, "calls": match.found, "leftover": match.leftover}
        return _Detection(match.format, f"{message}, and leaves {match.leftover} characters as text.", evidence, match.text)
    inferred = _infer(template, name)
    toml = format_to_toml(inferred.format)
    message = "\n".join(("No known format reads it. Worked out from what the template writes:\n", toml, *inferred.notes))
    return _Detection(inferred.format, message, {"format": None, "inferred": toml, "notes": inferred.notes}, inferred.text)


class FormatNotation(StrEnum):
    """How `callsmith formats show` writes a format."""

    TOML = "toml"
    RESPONSE_TEMPLATE = "response-template"


@app.command("show", epilog=example("callsmith formats show hermes"))
def show_format(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME|FILE", autocompletion=complete_formats, help="A format, or a file with one of your own."),
    ],
    notation: Annotated[
        FormatNotation, typer.Option("--as", help="TOML, or Hugging Face's response_template for a tokenizer_config.json.")
    ] = FormatNotation.TOML,
    template: Annotated[
        Path | None,
        typer.Option("--template", exists=True, dir_okay=False, help="The chat template that a response_template goes with."),
    ] = None,
) -> None:
    """Print a format, to change it or to give it to others. What a response_template cannot say is listed on stderr."""
    from callsmith.cli.inputs.options import find_format
    from callsmith.formats.huggingface.write import format_to_response_template, response_template_text
    from callsmith.formats.toml.write import format_to_toml
    from callsmith.models.plugins import format_in

    format = format_in(Path(name)) if Path(name).suffix in (".toml", ".json") else find_format(name)
    if notation is FormatNotation.TOML:
        echo_lines(format_to_toml(format), nl=False)
        return
    response_template = format_to_response_template(format, *_turn(template, format))
    echo_lines(response_template_text(response_template), nl=False)
    if template is None:
        echo("start_anchor and the end of the turn are ChatML's, for want of a chat template: give --template", err=True)
    for lost in response_template.lost:
        echo(f"not said: {lost}", err=True)


def _turn(file: Path | None, format: "Format") -> tuple[str, str]:
    """What a chat template begins the model's turn with, up to the reasoning that it may open, and what it ends it with."""
    from callsmith.formats.algebra import nodes_of
    from callsmith.formats.prompt.template import CHATML, Template
    from callsmith.formats.write import literal_text

    source = _text_in(file) if file else CHATML
    template = Template(source)
    question = {"role": "user", "content": "What now?"}
    turn = template.render_prompt([question])[1]
    reasoning = literal_text(nodes_of(format.thinks.open)).strip() if format.thinks else ""
    anchor = turn.partition(reasoning)[0] if reasoning else turn
    if not anchor:
        raise UsageError(f"the chat template in {file} begins no turn of the model's, so nothing shows where an answer starts")
    text, answer = template.render([question, {"role": "assistant", "content": "Nothing."}], generate=False), "Nothing."
    return anchor, text.rpartition(answer)[2].strip() if answer in text else ""


@app.command("check", epilog=example("callsmith formats check mine.toml"))
def check_format(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A format as TOML, or a tokenizer_config.json.")],
) -> None:
    """Try a format of your own: whether it keeps the laws that every format keeps, and has a grammar."""
    from callsmith.formats.inference.laws import check
    from callsmith.models.plugins import format_in

    format = format_in(file)
    breaches = [(breach.law, breach.what, breach.text) for breach in check(format)]
    breaches += [("it has a grammar", problem, "") for problem in _without_grammar(format)]
    for law, what, text in breaches:
        echo(f"broken: {law}", fg="red")
        echo(f"  {what}")
        if text:
            echo_lines("  the text:\n" + "\n".join(f"    {line}" for line in text.splitlines()))
    if breaches:
        raise typer.Exit(1)
    echo(f"{format.name} keeps the laws. It writes:")
    echo_lines("\n".join(f"  {line}" for line in _sample(format).splitlines()))


def _without_grammar(format: "Format") -> Iterator[str]:
    """The errors that occur when grammars are made of a format."""
    from callsmith.core.values import Choice, Tool
    from callsmith.formats.inference.laws import FAILURES
    from callsmith.grammar.calls import grammar_for
    from callsmith.grammar.targets.lark import to_lark

    properties = {"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}
    tools = [Tool("get_weather", "", {"type": "object", "properties": properties, "required": ["city"]}), Tool("get_time")]
    for choice in (Choice("required"), Choice("auto")):
        try:
            grammar = grammar_for(format, tools, choice)
            to_lark(grammar) if grammar else None
        except (CallsmithError, *FAILURES) as error:
            yield f"for tool choice {choice.mode}: {type(error).__name__}: {error}"


def _infer(template: "Template", name: str) -> "Inferred":
    from callsmith.formats.inference.infer import Inferred, infer

    inferred = infer(template, name)
    if isinstance(inferred, Inferred):
        return inferred
    echo(
        "error: no known format reads what this template writes, and none can be worked out. If it shows no calls at all, "
        "`generic-xml` works.",
        err=True,
        fg="red",
    )
    for reason in inferred.reasons:
        echo(f"  {reason}", err=True)
    raise typer.Exit(1)


def _rows() -> list[dict[str, Any]]:
    from callsmith.formats import formats
    from callsmith.models.plugins import load_formats

    load_formats()
    return [
        {
            "name": format.name,
            "aliases": list(format.aliases),
            "sample": _sample(format),
            "reasoning": format.thinks is not None,
            "ids": format.ids or None,
        }
        for format in sorted(formats().values(), key=lambda item: item.name)
    ]


def _sample(format: "Format") -> str:
    from callsmith.core.values import Call
    from callsmith.formats.prompt.prompt import fit_id
    from callsmith.formats.write import write

    return write(format, [Call("get_weather", {"city": "Paris"}, fit_id("call_1", format.ids) if format.ids else "")])


def _template(source: str) -> "Template":
    """The template of a file, or of weights on this machine, however they are named."""
    from callsmith.formats.prompt.template import Template
    from callsmith.models.weights.catalogue import catalogue
    from callsmith.models.weights.disk import is_gguf
    from callsmith.models.weights.found import find_model, list_model_names
    from callsmith.models.weights.hub_names import parse

    path = Path(source).expanduser()
    if path.is_file() and not is_gguf(path):
        return Template(_text_in(path))
    entry = catalogue().get(source)
    if entry is None and not source.endswith(".gguf") and not path.exists() and not (parse(source) or find_model(source)):
        raise UsageError(f"there is no file {source}, and no model of that name; models: {', '.join(list_model_names())}")
    if entry and entry.template:
        return Template(entry.template)
    import asyncio

    from callsmith.engines import open_engine
    from callsmith.models.weights.fetch import locate

    weights = locate(source)
    if weights.is_dir():
        files = [weights / name for name in ("chat_template.jinja", "tokenizer_config.json")]
        return Template(_text_in(next((file for file in files if file.is_file()), files[-1])))
    engine = open_engine(f"llama:{weights}", context=64)
    asyncio.run(engine.close())
    if engine.info.template is None:
        raise UsageError(f"{source} carries no chat template")
    return Template(engine.info.template, bos=engine.info.bos, eos=engine.info.eos)


def _text_in(path: Path) -> "Sources":
    """A template as it stands in a file: plain, or in a `tokenizer_config.json`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path} as text: {error}") from error
    if path.suffix != ".json":
        return text
    try:
        return json.loads(text)["chat_template"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} holds no chat_template") from error
