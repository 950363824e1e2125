"""`POST /bus/v1/call`: JSON and server-sent events."""

import asyncio
from typing import Any

import httpx2
import pytest

from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Settings
from tests.server.asking import http
from tests.server.routes.bus.calling import BODY, chat, envelope, post, query_headers, scripted_app, sse_frames
from tests.serving import served
from tests.waiting import until

FOUND = {"output": {"found": "hall", "corpus": "village"}, "meta": {}}


async def test_a_call_by_headers_and_one_by_an_envelope_are_answered_alike() -> None:
    app, _ = scripted_app()
    async with http(app) as client:
        by_headers = await post(client, BODY, **query_headers())
        by_envelope = await post(client, {"envelope": envelope("rag.query", "1.0", BODY)})
    assert by_headers.status_code == by_envelope.status_code == 200
    assert by_headers.json() == by_envelope.json() == FOUND


async def test_the_id_of_a_call_comes_back_and_is_that_of_its_trace() -> None:
    app, _ = scripted_app()
    async with http(app) as client:
        by_header = await post(client, BODY, **query_headers(**{"x-hearthnet-request-id": "01JHEADER"}))
        by_envelope = await post(client, {"envelope": envelope("rag.query", "1.0", BODY, request_id="01JBODY")})
        unnamed = await post(client, BODY, **query_headers())
        traced = (await client.get("/bus/v1/trace")).json()["calls"]
    assert by_header.headers["x-hearthnet-request-id"] == by_header.headers["x-request-id"] == "01JHEADER"
    assert by_envelope.headers["x-hearthnet-request-id"] == "01JBODY"
    assert [item["trace_id"] for item in traced] == ["01JHEADER", "01JBODY", unnamed.headers["x-hearthnet-request-id"]]
    assert {(item["capability"], item["version"], item["result"]) for item in traced} == {("rag.query", "1.0", "ok")}


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (BODY, {}, 400, "bad_request"),
        ([], query_headers(), 400, "bad_request"),
        ({"envelope": []}, {}, 400, "bad_request"),
        ({"envelope": {}}, {}, 400, "bad_request"),
        ({"envelope": {"capability": "rag.query", "version": "1.0"}}, {}, 400, "bad_request"),
        ({"envelope": envelope("rag.query", "1.0", "text")}, {}, 400, "bad_request"),
        (BODY, {"x-hearthnet-capability": "rag.query"}, 400, "bad_request"),
        (BODY, query_headers(**{"x-hearthnet-timestamp": "yesterday"}), 400, "bad_request"),
        ({"envelope": envelope("rag.query", "1.0", BODY)}, {"x-hearthnet-capability": "llm.chat"}, 400, "bad_request"),
        (BODY, query_headers(**{"x-hearthnet-signature": "ed25519:AAAA"}), 401, "invalid_signature"),
        (BODY, query_headers(**{"x-hearthnet-token": "hntoken://v1/a.b.c"}), 401, "token_invalid"),
        ({"envelope": envelope("rag.query", "1.0", BODY, token="t")}, {}, 401, "token_invalid"),
        ({"envelope": envelope("rag.query", "2.0", BODY)}, {}, 400, "schema_mismatch"),
        ({"envelope": envelope("rag.query", "1.0", {"input": {}})}, {}, 400, "schema_mismatch"),
        ({"envelope": envelope("rag.nothing", "1.0", BODY)}, {}, 404, "not_found"),
        ({"envelope": envelope("rag.query", "1.0", {**BODY, "params": {"corpus": "moon"}})}, {}, 404, "not_found"),
        ({"envelope": envelope("rag.query", "1.0", BODY, depth=6)}, {}, 400, "bad_request"),
        (
            {"envelope": envelope("rag.query", "1.0", {"input": {"query": "x", "sleep": 5}}, seconds=0.05)},
            {},
            408,
            "timeout",
        ),
        (chat(fail="first"), {}, 429, "rate_limited"),
        (chat(stream=False, fail="late"), {}, 408, "timeout"),
    ],
)
async def test_what_is_wrong_with_a_call_is_said_with_its_status_and_code(
    body: Any, headers: dict[str, str], status: int, code: str
) -> None:
    app, _ = scripted_app()
    async with http(app) as client:
        response = await post(client, body, **headers)
    stored = response.json()
    assert (response.status_code, stored["error"]) == (status, code), stored
    assert stored["message"] and stored["request_id"] == response.headers["x-request-id"]
    if code == "rate_limited":
        assert (stored["retry_after_ms"], response.headers["retry-after"]) == (2000, "2")


@pytest.mark.req("R104", "R107")
@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (chat(tokens=2), {}),
        (
            {"input": {"tokens": 2}, "stream": True},
            {"x-hearthnet-capability": "llm.chat", "x-hearthnet-capability-version": "2.0"},
        ),
        ({"envelope": envelope(body={"input": {"tokens": 2}})}, {"accept": "text/event-stream"}),
    ],
)
async def test_a_capability_that_streams_is_answered_with_events_where_they_are_wanted(
    body: Any, headers: dict[str, str]
) -> None:
    app, _ = scripted_app()
    async with http(app) as client:
        response = await post(client, body, **headers)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert sse_frames(response.text) == [
        ("token", {"text": "t0"}),
        ("token", {"text": "t1"}),
        ("done", {"tokens_out": 2, "stop_reason": "end"}),
    ]


@pytest.mark.parametrize(
    ("body", "accept"),
    [(chat(stream=False, tokens=2), "text/event-stream"), (chat(stream=False, tokens=2), "*/*")],
)
async def test_the_same_capability_answers_in_one_piece_where_no_events_are_wanted(body: Any, accept: str) -> None:
    app, _ = scripted_app()
    async with http(app) as client:
        response = await post(client, body, accept=accept)
    assert response.json() == {"output": {"tokens_out": 2, "stop_reason": "end"}, "meta": {}}


async def test_a_capability_that_does_not_stream_answers_with_json_whatever_is_wanted() -> None:
    app, _ = scripted_app()
    async with http(app) as client:
        response = await post(client, {"envelope": envelope("rag.query", "1.0", BODY, stream=True)}, accept="text/event-stream")
    assert response.json() == FOUND


async def test_an_error_in_the_middle_of_a_stream_is_its_last_frame() -> None:
    app, _ = scripted_app()
    async with http(app) as client:
        response = await post(client, chat(tokens=1, fail="late"))
    assert response.status_code == 200
    assert [event for event, _ in sse_frames(response.text)] == ["token", "error"]
    assert sse_frames(response.text)[-1][1] == {"error": "timeout", "message": "too late"}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_caller_that_disconnects_ends_the_call_at_once_and_its_place_is_free(stream: bool) -> None:
    app, scripted = scripted_app(settings=Settings(queue=1))
    async with served(app) as url:
        async with httpx2.AsyncClient(base_url=url) as client:
            calling = asyncio.create_task(post(client, chat(stream=stream, tokens=1, sleep=30)))
            await until(lambda: scripted.running)
            calling.cancel()
            await asyncio.wait({calling})
        await until(lambda: not scripted.running)
        assert scripted.cancelled == 1
        async with httpx2.AsyncClient(base_url=url) as client:
            assert (await post(client, chat(tokens=1))).status_code == 200


async def test_a_silent_stream_is_kept_alive() -> None:
    app, _ = scripted_app(settings=Settings(keep_alive=0.02))
    async with http(app) as client:
        response = await post(client, chat(sleep=0.2))
    assert ": keep-alive" in response.text
    assert [event for event, _ in sse_frames(response.text)] == ["done"]


async def test_a_server_that_is_full_says_so() -> None:
    app, scripted = scripted_app(settings=Settings(queue=1))
    async with http(app) as client:
        slow = [asyncio.create_task(post(client, chat(stream=False, sleep=0.3))) for _ in range(1)]
        await until(lambda: scripted.running)
        refused = await post(client, BODY, **query_headers())
        assert (refused.status_code, refused.json()["error"]) == (429, "capacity_exceeded")
        assert "retry-after" in refused.headers
        assert (await slow[0]).status_code == 200
        assert (await post(client, BODY, **query_headers())).status_code == 200


async def test_what_can_be_called_is_listed_with_its_schemas() -> None:
    app, _ = scripted_app()
    async with http(app) as client:
        listed = (await client.get("/bus/v1/capabilities")).json()
    assert listed["node"] == "local"
    query, talk = listed["capabilities"]
    assert (query["name"], query["version"], query["callable"], query["params"]) == (
        "rag.query",
        "1.0",
        True,
        {"corpus": ["village", "city"]},
    )
    assert query["request_schema"]["required"] == ["input"] and query["stream_schema"] is None
    assert talk["stream_schema"] == {"type": "object"}


async def test_calls_are_counted_in_the_metrics() -> None:
    app, _ = scripted_app()
    async with http(app) as client:
        await post(client, BODY, **query_headers())
        await post(client, chat(fail="first"))
        text = (await client.get("/metrics")).text
    assert 'callsmith_bus_calls_total{capability="rag.query",result="ok"} 1.0' in text
    assert 'callsmith_bus_calls_total{capability="llm.chat",result="rate_limited"} 1.0' in text


async def test_the_rate_limits_of_a_key_hold_for_calls() -> None:
    keys = {"alice": Key(hash_key("a"), requests_per_minute=1)}
    app, _ = scripted_app(settings=Settings(keys=keys))
    async with http(app) as client:
        first = await post(client, BODY, **query_headers(authorization="Bearer a"))
        second = await post(client, BODY, **query_headers(authorization="Bearer a"))
    assert first.headers["x-ratelimit-remaining-requests"] == "0" and first.headers["x-hearthnet-request-id"]
    assert (second.status_code, second.json()["error"]) == (429, "rate_limited")


async def test_a_caller_has_no_more_calls_at_a_time_than_it_may_and_others_have_theirs() -> None:
    keys = {"alice": Key(hash_key("a"), concurrent=1), "bob": Key(hash_key("b"))}
    app, scripted = scripted_app(settings=Settings(keys=keys))
    async with http(app) as client:
        slow = asyncio.create_task(post(client, chat(sleep=0.3), authorization="Bearer a"))
        await until(lambda: scripted.running)
        refused = await post(client, BODY, **query_headers(authorization="Bearer a"))
        assert (refused.status_code, refused.json()["error"]) == (429, "rate_limited")
        assert (await post(client, BODY, **query_headers(authorization="Bearer b"))).status_code == 200
        assert (await slow).status_code == 200
