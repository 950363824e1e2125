"""`callsmith parse`: what a model wrote, to JSON. With `--jsonl`, a corpus line by line."""

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from callsmith.cli.inputs.completion import complete_formats
from callsmith.cli.inputs.options import FormatFileOption, example, find_format, named_format
from callsmith.cli.terminal.output import echo, echo_json
from callsmith.core.errors import CallsmithError, UsageError
from callsmith.core.types.tables import Table

if TYPE_CHECKING:
    from callsmith.core.values import Tool
    from callsmith.formats.algebra import Format

app = typer.Typer()


@app.command(epilog=example("callsmith parse --format hermes answer.txt"))
def parse(
    source: Annotated[str, typer.Argument(metavar="[FILE|-]", help="What to read; - is standard input.")] = "-",
    format: Annotated[
        str | None,
        typer.Option("--format", "-f", autocompletion=complete_formats, help="How the model writes: see `callsmith formats`."),
    ] = None,
    format_file: FormatFileOption = None,
    tools: Annotated[
        Path | None, typer.Option("--tools", exists=True, dir_okay=False, help="The tools the model was shown, as JSON.")
    ] = None,
    opened: Annotated[str, typer.Option("--opened", help="What the prompt had already written of the answer.")] = "",
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl", help='Read lines of {"format", "tools", "output" or "chunks", "opened", "thinking"}, write a line each.'
        ),
    ] = False,
) -> None:
    """Read the calls out of a model's text."""
    from callsmith.cli.inputs.tool_files import tools_in

    format = named_format(format, format_file)
    declared = tools_in(tools) if tools else ()
    with ExitStack() as stack:
        stream = sys.stdin.buffer if source == "-" else stack.enter_context(_open(source))
        if jsonl:
            if not _corpus(stream, {"format": format, "opened": opened}, declared):
                raise typer.Exit(1)
            return
        if format is None:
            raise UsageError("say how the model writes: --format NAME (`callsmith formats` lists them)", field="format")
        text = stream.read().decode("utf-8", "replace")
        echo_json(parse_output(find_format(format), [text], declared, opened))


def parse_output(format: "Format", pieces: Iterable[str], tools: "Sequence[Tool]", opened: str = "") -> dict[str, Any]:
    """What a text, in pieces, says: content, reasoning and calls."""
    from callsmith.formats.reader.parse import parse

    read = parse(format, pieces, tools, opened)
    unreadable = [{"text": event.text, "reason": event.reason} for event in read.unreadable]
    answer: dict[str, Any] = {
        "content": read.content or None,
        "reasoning": read.reasoning or None,
        "calls": [
            {"name": call.name, "arguments": dict(call.arguments)} | ({"id": call.id} if call.id else {}) for call in read.calls
        ],
    }
    return answer | ({"unreadable": unreadable} if unreadable else {})


def _corpus(lines: IO[bytes], defaults: dict[str, Any], tools: "Sequence[Tool]") -> bool:
    """A line of JSON for a line of JSON. Whether all of them could be read."""
    sound = True
    for line in lines:
        if line.isspace():
            continue
        try:
            answer = _row(json.loads(line), defaults, tools)
        except (CallsmithError, ValueError, RecursionError) as error:
            answer, sound = {"error": str(error) or type(error).__name__}, False
        # In ASCII: a model's text may hold half a character, which no encoding can write.
        echo(json.dumps(answer))
    return sound


def _row(row: Any, defaults: dict[str, Any], tools: "Sequence[Tool]") -> dict[str, Any]:
    from callsmith.cli.inputs.tool_files import tools_of

    data = Table.of(row, "line").data
    fields = Table(defaults | {key: value for key, value in data.items() if value is not None})
    format = find_format(fields.required_text("format"))
    opened = fields.text("opened") or ""
    if fields.get("thinking"):
        opened = _within_thought(format, opened)
    declared = tools_of(fields.get("tools")) if "tools" in fields.data else tools
    if fields.array("chunks") is None and fields.text("output") is None:
        raise fields.error("output", "is missing")
    return parse_output(format, fields.texts("output" if fields.get("chunks") is None else "chunks"), declared, opened)


def _within_thought(format: "Format", opened: str) -> str:
    """The prompt's tail, so that it ends inside the model's reasoning."""
    from callsmith.formats.algebra import nodes_of
    from callsmith.formats.write import literal_text

    if format.thinks is None:
        return opened
    opener, closer = (literal_text(nodes_of(nodes)) for nodes in (format.thinks.open, format.thinks.close))
    begun = opened.rfind(opener.strip())
    if begun >= 0 and opened.find(closer.strip(), begun) < 0:
        return opened
    shared = next(size for size in range(len(opener), -1, -1) if opened.endswith(opener[:size]))
    return opened + opener[shared:]


def _open(source: str) -> IO[bytes]:
    try:
        return Path(source).open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror or error}", field="file") from error
