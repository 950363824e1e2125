"""`/openapi.json`: it has every route, with its schemas, and what the server answers fits them."""

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.routes.openapi import operations
from callsmith.server.settings import Key, Settings
from callsmith.tools.functions import Functions, tool
from tests.fakes import FakeModel
from tests.server.asking import BONN, HI, WEATHER, calls, http, says
from tests.server.openapi.checking import Checked, Checker, checker_of

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-docs" / "bin" / "python"


def an_app(*answers: Any, **options: Any) -> Starlette:
    return create_app({"m": FakeModel(*(answers or [says("hi")]))}, **options)


async def document(app: Starlette, **headers: str) -> Any:
    async with http(app) as client:
        return (await client.get("/openapi.json", headers=headers)).raise_for_status().json()


async def test_every_route_is_described_and_nothing_else_is():
    paths = (await document(an_app()))["paths"]
    served = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert served == set(operations())


async def test_every_reference_leads_to_a_schema_and_every_schema_is_used():
    whole = await document(an_app())
    text = json.dumps(whole)
    references = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert references == set(whole["components"]["schemas"])


async def test_the_document_needs_a_key_where_the_rest_does():
    app = an_app(settings=Settings(keys={"ada": Key(hash_key("secret"))}))
    async with http(app) as client:
        assert (await client.get("/openapi.json")).status_code == 401
    whole = await document(app, authorization="Bearer secret")
    assert whole["security"] == [{"key": []}] and whole["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


@pytest.mark.docs
async def test_it_is_valid_openapi(tmp_path: Path):
    if not PYTHON.exists():
        pytest.skip("needs .venv-docs: make test-docs")
    (tmp_path / "openapi.json").write_text(json.dumps(await document(an_app())))
    command = [PYTHON, "-m", "openapi_spec_validator", "--schema", "3.1", tmp_path / "openapi.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "OK" in done.stdout, done.stdout + done.stderr


def examples() -> list[tuple[str, Any]]:
    return [(at, operation.example) for at, operation in operations().items() if operation.example is not None]


@pytest.mark.parametrize(("at", "body"), examples(), ids=[at for at, _ in examples()])
def test_every_example_fits_its_own_schema(at: str, body: Any):
    method, path = at.split()
    assert checker_of(an_app()).check_request(method, path, body) == []


@tool
def clock() -> str:
    return "noon"


async def test_what_the_server_answers_fits_whole_streamed_and_as_an_error():
    app = Checked(an_app(calls(BONN), says("so"), says("hi"), tools=Functions(clock)))
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for stream in (False, True):
            for more in (
                {},
                {"tools": [WEATHER]},
                {"tool_events": True},
                {"explain": True},
                {"n": 2},
                {"stream_options": {"include_usage": True}},
            ):
                await client.post("/v1/chat/completions", json={"messages": HI, "stream": stream, **more})
            await client.post("/v1/completions", json={"prompt": "a", "stream": stream})
            await client.post("/v1/responses", json={"input": "hi", "stream": stream})
            await client.post("/v1/messages", json={"messages": HI, "max_tokens": 9, "stream": stream})
            await client.post("/api/chat", json={"messages": HI, "stream": stream})
            await client.post("/api/generate", json={"prompt": "hi", "stream": stream})
        conversation = (await client.post("/v1/conversations", json={"items": HI})).json()
        await client.post("/v1/responses", json={"input": "hi", "conversation": conversation["id"]})
        for at in operations():
            method, path = at.split()
            path = (
                path.replace("{id}", conversation["id"] if "conversations" in path else "x")
                .replace("{name}", "m")
                .replace("{item}", "x")
            )
            if method == "GET" and "events" not in path:
                await client.get(path)
            elif method == "POST":
                await client.post(path, json={"messages": 3, "input": 3, "prompt": {}, "capability": 1})
    assert app.complaints == []
    assert len(app.seen) > 40


def test_a_field_that_no_schema_has_would_be_found():
    checker: Checker = checker_of(an_app())
    body = json.dumps({"input_tokens": 3, "surprise": True}).encode()
    (complaint,) = checker.check_answer("POST", "/v1/messages/count_tokens", 200, "application/json", body)
    assert "surprise" in complaint
