"""A dialect is one module in `server/routes`: a toy one is added from a folder beside it, and nothing else is edited."""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import httpx2
import pytest
from starlette.applications import Starlette

from callsmith.core.errors import Unavailable
from callsmith.models.opening import open_model
from callsmith.server import routes
from callsmith.server.app import create_app
from callsmith.server.http.shutdown import GracefulShutdown
from callsmith.server.settings import Key, Settings
from tests.fakes import FakeModel
from tests.server.asking import says

TOY = '''
    """`POST /toy/ask`: a question is a text, and so is the answer."""

    from starlette.requests import Request as HttpRequest
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    from callsmith.core.events import Text
    from callsmith.core.values import Message, Request
    from callsmith.server.http.errors import Dialect
    from callsmith.server.http.streams import collect_items, unless_disconnected
    from callsmith.server.service import Service
    from callsmith.wire.errors import Failure, describe_error


    def write_failure(status: int, message: str) -> Failure:
        return Failure(status, {"toy": message})


    def write_error(error: BaseException) -> Failure:
        known = describe_error(error)
        return write_failure(known.status, known.message)


    DIALECT = Dialect(
        write_error,
        write_failure,
        paths=("/toy",),
        headers=("toy-client",),
        write_models=lambda models: {"toys": [model.name for model in models]},
    )


    def routes(service: Service) -> list[Route]:
        async def ask(request: HttpRequest) -> Response:
            question = (await request.body()).decode()
            model = service.models.get(request.query_params.get("model", "m"))
            answer = service.answers.answer(model, Request((Message.user(question),)))
            events = await unless_disconnected(request.receive, collect_items(answer))
            return PlainTextResponse("".join(event.text for event in events if isinstance(event, Text)))

        return [Route("/toy/ask", ask, methods=["POST"])]
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "toy.py").write_text(dedent(TOY), "utf-8")
    monkeypatch.setattr(routes, "__path__", [*routes.__path__, str(tmp_path)])
    yield
    sys.modules.pop(f"{routes.__name__}.toy", None)
    vars(routes).pop("toy", None)


def asking(app: Starlette | GracefulShutdown) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost")


@pytest.mark.usefixtures("toy")
async def test_its_route_answers():
    async with asking(create_app({"m": open_model("scripted:Hello!")})) as client:
        answer = await client.post("/toy/ask", content="Hi")
    assert (answer.status_code, answer.text) == (200, "Hello!")


@pytest.mark.usefixtures("toy")
async def test_its_errors_have_its_own_shape():
    async with asking(create_app({"m": FakeModel([Unavailable("it sleeps")])})) as client:
        for path, status, words in [
            ("/toy/ask?model=other", 404, "unknown model 'other'"),
            ("/toy/nowhere", 404, "unknown path: /toy/nowhere"),
            ("/toy/ask", 503, "it sleeps"),
        ]:
            answer = await client.post(path, content="Hi")
            assert answer.status_code == status
            assert answer.json().keys() == {"toy", "request_id"}
            assert words in answer.json()["toy"]


@pytest.mark.usefixtures("toy")
async def test_so_do_those_of_the_layers_around_the_routes():
    hashes = {"someone": Key(sha256="0" * 64)}
    stopped = GracefulShutdown(create_app({"m": FakeModel([60.0, *says("never")])}))
    stopped.stop()
    async with asking(create_app({"m": FakeModel(says("hi"))}, settings=Settings(keys=hashes))) as client:
        assert "a key is needed" in (await client.post("/toy/ask")).json()["toy"]
    async with asking(stopped) as client:
        assert (await client.post("/toy/ask", content="Hi")).json() == {"toy": "the server is shutting down"}


@pytest.mark.usefixtures("toy")
async def test_its_clients_get_the_list_of_models_in_its_own_shape():
    async with asking(create_app({"m": FakeModel(says("hi"))})) as client:
        assert (await client.get("/v1/models", headers={"toy-client": "1"})).json() == {"toys": ["m"]}
        assert (await client.get("/v1/models")).json()["object"] == "list"


@pytest.mark.usefixtures("toy")
async def test_the_other_dialects_stay_as_they_are():
    async with asking(create_app({"m": FakeModel(says("hi"))})) as client:
        assert (await client.post("/v1/messages", json={})).json()["type"] == "error"
        assert isinstance((await client.post("/api/chat", json={"model": "x"})).json()["error"], str)
        assert (await client.post("/v1/chat/completions", json={})).json()["error"]["type"] == "invalid_request_error"


async def test_without_its_module_there_is_no_such_path():
    async with asking(create_app({"m": FakeModel(says("hi"))})) as client:
        answer = await client.post("/toy/ask")
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "unknown path: /toy/ask")


def test_every_module_of_the_folder_has_routes_and_they_come_in_the_order_of_the_names():
    names = [module.__name__.rpartition(".")[2] for module in routes.route_modules()]
    assert names == sorted(names)
    assert {"anthropic", "ollama", "openai_chat", "responses", "approvals", "health", "telemetry"} <= set(names)
    assert all(callable(module.routes) for module in routes.route_modules())
