"""What counts as an answer, and what is kept of answers: an error in an answer's place is none, and nothing measured is lost."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("aiohttp")

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from callsmith.cli.main import app as cli
from callsmith.evals.against.answers import read_answers
from callsmith.evals.against.comparison import AskedServer, compare_servers
from callsmith.evals.against.questions import own_questions
from callsmith.evals.check.dialects.chat import CHAT
from tests.evals.against.scripted import scripted
from tests.serving import served, served_apart

ERROR = {"error": {"message": "Rate limit exceeded", "code": 429}}


def always(response: Response) -> Starlette:
    """A server that says the same to whatever it is asked."""

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "m"}]})

    async def chat(request: Request) -> Response:
        return response

    return Starlette(routes=[Route("/v1/models", models), Route("/v1/chat/completions", chat, methods=["POST"])])


@pytest.mark.parametrize("response", [JSONResponse(ERROR), HTMLResponse("<html>Sign in</html>")], ids=["error", "page"])
async def test_what_comes_in_the_place_of_an_answer_is_none_though_its_status_is_200(response: Response) -> None:
    async with served(always(response)) as url:
        server = AskedServer(f"{url}/v1")
        asked = await compare_servers(server, own_questions()[:4], dialect=CHAT)
        against = await compare_servers(server, own_questions()[:4], dialect=CHAT, reference=server)
    assert [item.measure.name for item in asked.failed] == ["answered"]
    assert next(iter(asked.failed[0].wrong.values())).startswith("200 ")
    assert not against.is_finished and "did not answer 4 of 4" in against.remarks["no reference"]


async def test_a_question_that_is_forbidden_is_not_answered_and_the_others_are_not_lost() -> None:
    times = iter(range(999))
    async with served(scripted(lambda reply, body: 403 if next(times) == 5 else None)) as url:
        report = await compare_servers(AskedServer(f"{url}/v1"), own_questions(), dialect=CHAT, concurrency=1)
    assert len(report.answers) == 48
    assert [list(item.wrong.values()) for item in report.failed] == [['403 {"error":{"message":"no"}}']]


def test_answers_that_did_not_come_leave_the_file_as_it_was(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    arguments = ["--only", "simple", "--record", str(kept)]
    with served_apart(scripted()) as url:
        assert CliRunner().invoke(cli, ["check", f"{url}/v1", *arguments]).exit_code == 0
    with served_apart(always(JSONResponse(ERROR, 500))) as url:
        failed = CliRunner().invoke(cli, ["check", f"{url}/v1", *arguments])
    assert failed.exit_code == 1 and "are in" not in failed.output
    assert len(read_answers(kept).answers) == 6


@pytest.mark.parametrize("option", ["--record", "--json", "--junit", "--markdown"])
def test_a_folder_that_there_is_not_is_said_before_anything_is_asked(tmp_path: Path, option: str) -> None:
    asked = list[Any]()
    with served_apart(scripted(lambda reply, body: asked.append(body))) as url:
        result = CliRunner().invoke(cli, ["check", f"{url}/v1", option, str(tmp_path / "nowhere" / "file")])
    assert result.exit_code == 2 and "nowhere" in result.output
    assert not asked


def test_the_conclusion_counts_only_questions_that_the_record_has(tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.jsonl")
    with served_apart(scripted()) as url:
        CliRunner().invoke(cli, ["check", f"{url}/v1", "--only", "simple_1", "--record", kept])
        result = CliRunner().invoke(cli, ["check", f"{url}/v1", "--against", kept])
    assert "not recorded: 47 of 48 questions" in result.output
    assert "; 1 of 48 questions compared, " in result.output
