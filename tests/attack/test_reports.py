"""Names, answers and descriptions from outside command no terminal, and make no markup in any report.

Whoever runs the server that is checked, wrote the trace that is reported, or named the weights, is not who reads the report.
"""

import json
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from typer.testing import CliRunner

pytest.importorskip("aiohttp")

from callsmith.cli.main import app as cli
from callsmith.core.serialize import dump
from callsmith.core.types.escaped_text import in_html, in_markdown, one_line, show_hidden
from callsmith.evals.run.record import CaseRecord, Records, read_records
from callsmith.evals.scores.tuning import Tuning, Way, write_tuning
from callsmith.models.weights.measured import Measured
from callsmith.runtime.telemetry.turns import CallRecord, TurnRecord
from callsmith.server.http.logs import LineFormatter
from tests.serving import served_apart

COMMANDS = (
    "\x1b]52;c;cm0gLXJmIC8=\x07\x1b[2J\x9b31m\u202e\u200b\x08\x00\x7f\u2028\ud800\uffff\r\n2026-11-17T00:00:00+0000 INFO forged"
)
MARKUP = "</td> | <script>alert(1)</script> <img src=x> ![i](http://evil.example/i.png) [l](javascript:a) `c` ** # \"'"
HOSTILE = f"m{COMMANDS} {MARKUP} https://evil.example www.evil.example @all"
SWAPPING = Path(__file__).with_name("swapping.py")
OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u202e\ud800\uffff]")
TAGS = re.compile(r"<(script|img|a)\b")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Commands set up logging for a process of their own."""
    logger, last = logging.getLogger("callsmith.tools.mcp"), logging.lastResort
    level = logger.level
    yield
    logger.setLevel(level)
    assert last is not None
    last.setFormatter(None)


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(cli, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def commands_nothing(text: str) -> bool:
    """Whether a terminal shows all of it, on the lines that are ours."""
    return not OBEYED.search(text) and "\n2026-11-17" not in text


def has_no_markup(text: str) -> bool:
    """Whether no script, image or link comes of a Markdown text, and every row of a table has all of its cells and no more."""
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    bare = re.sub(r"<code>.*?</code>", "", html, flags=re.DOTALL)  # what others link by themselves they do not link in code
    widths = {len(re.findall("<t[dh]", row)) for table in html.split("<table>")[1:] for row in table.split("<tr>")[1:]}
    return not TAGS.search(html) and "evil.example" not in bare and "@all" not in bare and len(widths) <= html.count("<table>")


async def _answer(request: Request) -> Response:
    if request.url.path.endswith("/models"):
        return Response(json.dumps({"data": [{"id": HOSTILE}]}), media_type="application/json")
    if request.url.path.endswith("/health"):
        return Response(json.dumps({"status": HOSTILE}))
    body = {"role": "user", "content": HOSTILE, "tool_calls": [{"function": {"name": HOSTILE, "arguments": HOSTILE}}]}
    choices = [{"index": 0, "message": body, "finish_reason": "stop"}]
    return Response(json.dumps({"choices": choices}), media_type="application/json")


HOSTILE_SERVER = Starlette(routes=[Route("/{path:path}", _answer, methods=["GET", "POST"])])


@pytest.mark.parametrize("more", [(), ("--verbose",)])
def test_a_server_that_is_checked_commands_no_terminal_and_writes_no_markup(tmp_path: Path, more: Sequence[str]) -> None:
    files = {kind: tmp_path / kind for kind in ("markdown", "json", "junit")}
    options = [text for kind, path in files.items() for text in (f"--{kind}", str(path))]
    with served_apart(HOSTILE_SERVER) as url:
        result = run("check", f"{url}/v1", "--dialect", "chat", "--only", "c*", *options, *more)
    assert result.exit_code == 1
    assert commands_nothing(result.stdout)
    assert "cm0gLXJmIC8=" in result.stdout  # it is shown, and not obeyed
    card = files["markdown"].read_text("utf-8")
    assert commands_nothing(card)
    assert has_no_markup(card)
    assert json.loads(files["json"].read_text("utf-8"))["model"] == HOSTILE
    assert ElementTree.fromstring(files["junit"].read_text("utf-8")).findall("testcase")


def test_what_a_server_says_that_cannot_be_used_is_an_error_of_a_line() -> None:
    async def unready(request: Request) -> Response:
        return Response(HOSTILE.encode("utf-8", "surrogatepass"), 503)

    with served_apart(Starlette(routes=[Route("/{path:path}", unready)])) as url:
        result = run("check", f"{url}/v1")
    assert result.exit_code == 1
    assert commands_nothing(result.stderr)


def test_results_that_others_wrote_make_no_markup_in_the_reports_of_an_evaluation(tmp_path: Path) -> None:
    records = [
        CaseRecord(f"case{HOSTILE}{right}", HOSTILE, f"{setup}/{HOSTILE}", "d", right, error_type="" if right else HOSTILE)
        for setup in ("m", "n")
        for right in (True, False)
    ]
    (tmp_path / "records.jsonl").write_text("".join(f"{json.dumps(dump(record))}\n" for record in records), "utf-8")
    result = run("eval", "report", "--out", str(tmp_path))
    compared = run("eval", "compare", f"m/{HOSTILE}", f"n/{HOSTILE}", "--ids", "--out", str(tmp_path))
    assert (result.exit_code, compared.exit_code) == (0, 0)
    assert commands_nothing(result.stdout + result.stderr + compared.stdout)
    report, page = (tmp_path / "report.md").read_text("utf-8"), (tmp_path / "report.html").read_text("utf-8")
    assert commands_nothing(report)
    assert has_no_markup(report)
    assert not OBEYED.search(page)
    assert not re.search("<(script|img|a) ?", page)
    assert page.count("<td>") == page.count("</td>")


def test_names_that_others_gave_make_no_markup_in_the_report_of_a_tuning(tmp_path: Path) -> None:
    ways = [Way(name, 0.5, 0.5, (CaseRecord("c", HOSTILE, f"m/{name}", "d", True),)) for name in ("template", HOSTILE)]
    path = write_tuning(tmp_path, "m", Tuning(tuple(ways), ways[0], {"c": "calls"}, 1, 1))
    text = path.read_text("utf-8")
    assert commands_nothing(text)
    assert has_no_markup(text)


def test_a_trace_that_others_wrote_commands_no_terminal(tmp_path: Path) -> None:
    calls = tuple(CallRecord(name, "failed", step=step) for step, name in enumerate((HOSTILE, f"{HOSTILE}2")))
    turn = TurnRecord(0.0, HOSTILE, (HOSTILE, f"{HOSTILE}3"), calls=calls)
    trace = tmp_path / "trace.jsonl"
    trace.write_text(json.dumps(dump(turn)) + "\n", "utf-8")
    result = run("tools", "report", "--trace", str(trace))
    assert "1 turns" in result.stdout
    assert commands_nothing(result.stdout)
    listed = run("tools", "report", "--trace", str(trace), "--json").stdout
    assert commands_nothing(listed)
    assert HOSTILE in json.loads(listed)["tools"]


def test_an_mcp_servers_definitions_command_no_terminal(tmp_path: Path) -> None:
    hostile = HOSTILE.replace("\ud800", "").replace("\0", "")  # no argument of a process, and no JSON-RPC, has these
    schema = {"type": "object", "properties": {hostile: {"type": "string"}}}
    (tmp_path / "a.json").write_text(json.dumps([{"name": "look", "description": hostile, "inputSchema": schema}]))
    arguments = ["-I", "-S", str(SWAPPING), str(tmp_path / "a.json"), str(tmp_path / "ran"), hostile]
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"a": {"command": sys.executable, "args": arguments}}}))
    result = run("tools", "list", "--mcp-config", str(config))
    assert "look" in result.stdout
    assert "cm0gLXJmIC8=" in result.stderr  # what the server calls itself
    assert commands_nothing(result.stdout + result.stderr)


def test_weights_that_were_named_by_others_command_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSMITH_CONFIG", str(tmp_path))
    (tmp_path / "measured.json").write_text(json.dumps({HOSTILE: dump(Measured(HOSTILE, tool_prompt=HOSTILE))}), "utf-8")
    result = run("models")
    assert "cm0gLXJmIC8=" in result.stdout
    assert commands_nothing(result.stdout)


def test_a_server_that_is_asked_how_it_does_commands_no_terminal() -> None:
    with served_apart(HOSTILE_SERVER) as url:
        result = run("doctor", "--url", url, "--model", "scripted:Hi")
    assert "says: m" in result.stdout
    assert commands_nothing(result.stdout)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_line_of_the_log_is_one_line_whatever_stands_in_it(as_json: bool) -> None:
    formatter = LineFormatter(as_json=as_json)
    record = logging.LogRecord("callsmith", logging.WARNING, "f", 1, "%s said %s", ("a server", HOSTILE), None)
    record.fields = {"model": HOSTILE}
    line = formatter.format(record)
    assert commands_nothing(line)
    assert "\n" not in line
    if as_json:
        assert json.loads(line)["model"] == HOSTILE


@pytest.mark.parametrize("as_json", [False, True])
def test_an_exception_in_the_log_looks_like_no_other_line(as_json: bool) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        record = logging.LogRecord("callsmith", logging.ERROR, "f", 1, "failed", (), (type(error), error, error.__traceback__))
    first, *trace = LineFormatter(as_json=as_json).format(record).split("\n")
    assert commands_nothing("\n".join([first, *trace]))
    assert all(line.startswith("  ") for line in trace)


def test_warnings_of_a_command_command_no_terminal() -> None:
    run("formats", "show", "hermes")
    assert logging.lastResort is not None
    line = logging.lastResort.format(logging.LogRecord("callsmith", logging.WARNING, "f", 1, HOSTILE, (), None))
    assert commands_nothing(line)


PLAIN = [
    "qwen2.5-coder/free",
    "87.5 % (80.1–92.4) of 120",
    "live_simple",
    "déjà vu, 東京",
    "+1.5 to +2.0",
    "< 1",
    "a call was made",
]


@pytest.mark.parametrize("text", [*PLAIN, HOSTILE, "a|b", r"a\|b", "`", "``` x", "<b>", "a@b.c", "_x_", "", " "])
def test_text_in_markdown_is_shown_as_it_was_written(text: str) -> None:
    table = f"| a | b |\n|---|---|\n| {in_markdown(text)} | {in_markdown(text)} |\n\n# {in_markdown(text)}\n"
    assert has_no_markup(table)
    if "`" not in text and "\\" not in text and not OBEYED.search(text):
        html = MarkdownIt("commonmark", {"html": True}).enable("table").render(table)
        cells = [re.sub("<[^>]*>", "", match).strip() for match in re.findall(r"<td>(.*?)</td>", html)]
        assert cells == [in_html(text).replace("&#x27;", "'").strip()] * 2


def test_what_is_hidden_is_shown_as_json_would_write_it() -> None:
    document = json.dumps({"name": f"a\u202eb\U000e0041\x7f\x9b{chr(0xD800)}"}, ensure_ascii=False)
    assert json.loads(show_hidden(document)) == json.loads(document)
    assert show_hidden("one\r\ntwo\tthree\rfour") == "one\ntwo\tthree\\u000dfour"
    assert one_line("one\r\ntwo\tthree") == "one\\ntwo\\tthree"
    assert one_line("x" * 100, 10) == "xxxxxxxxx…"
    assert in_html("<b>\x1b</b>") == "&lt;b&gt;\\u001b&lt;/b&gt;"


def test_half_a_surrogate_pair_that_a_model_wrote_ends_no_evaluation(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.add(CaseRecord("c", "category", "setup", "d", text=HOSTILE))
    records.close()
    (record,) = read_records(tmp_path)
    assert record.text == HOSTILE
