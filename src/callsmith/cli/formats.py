"""`callsmith formats`: the formats that are known, and which one a chat template speaks."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callsmith.core.errors import UsageError

if TYPE_CHECKING:
    from callsmith.formats.template import Sources, Template

formats_app = typer.Typer(help="The formats models write calls in.", rich_markup_mode=None)


@formats_app.callback(invoke_without_command=True)
def list_formats(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False
) -> None:
    """List the formats, each with a call as it is written."""
    if context.invoked_subcommand:
        return
    rows = _rows()
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
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


@formats_app.command("detect")
def detect_format(
    source: Annotated[
        str, typer.Argument(metavar="TEMPLATE_FILE|GGUF|MODEL", help="A chat template, a GGUF file, or a model of the catalogue.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the evidence as JSON.")] = False,
) -> None:
    """Find out which format a chat template speaks: it renders known calls, and every format tries to read them back."""
    from callsmith.formats import formats
    from callsmith.formats.detect import detect

    found = detect(_template(source), formats().values())
    if found is None:
        typer.secho(
            "error: no known format reads what this template writes. Either it shows no calls at all (then `generic-xml` works), "
            "or its format is not known yet.",
            err=True,
            fg="red",
        )
        raise typer.Exit(1)
    if as_json:
        evidence = {"format": found.format.name, "calls": found.found, "leftover": found.leftover, "rendered": found.text}
        typer.echo(json.dumps(evidence, ensure_ascii=False, indent=2))
        return
    typer.echo(found.format.name)
    typer.echo(f"It reads back {found.found} of {found.shown} calls that the template was given", nl=False)
    typer.echo(f", and leaves {found.leftover} characters as text. The template wrote:")
    typer.echo("\n".join(f"  {line}" for line in found.text.splitlines()))


def _rows() -> list[dict[str, Any]]:
    from callsmith.core.values import Call
    from callsmith.formats import formats
    from callsmith.formats.prompt import fit_id
    from callsmith.formats.write import write

    call = {"city": "Paris"}
    return [
        {
            "name": format.name,
            "aliases": list(format.aliases),
            "sample": write(format, [Call("get_weather", call, fit_id("call_1", format.ids) if format.ids else "")]),
            "reasoning": format.thinks is not None,
            "ids": format.ids or None,
        }
        for format in sorted(formats().values(), key=lambda one: one.name)
    ]


def _template(source: str) -> "Template":
    """The template of a file, of weights, or of a model of the catalogue."""
    from callsmith.formats.template import Template
    from callsmith.models.catalogue import catalogue
    from callsmith.models.disk import is_gguf

    path = Path(source).expanduser()
    if path.is_file() and not is_gguf(path):
        return Template(_text_in(path))
    entry = catalogue().get(source)
    if entry and entry.template:
        return Template(entry.template)
    from callsmith.engines import open_engine
    from callsmith.models.weights import locate

    engine = open_engine(f"llama:{locate(source)}", context=64)
    try:
        if engine.template is None:
            raise UsageError(f"{source} carries no chat template")
        return Template(engine.template, bos=getattr(engine, "bos", ""), eos=getattr(engine, "eos", ""))
    finally:
        engine.close()


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
