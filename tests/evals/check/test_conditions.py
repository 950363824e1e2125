"""What a check meets besides faults: addresses that are not complete, keys, servers that are slow, loading or gone."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("aiohttp")

from callsmith.cli.main import app as cli
from callsmith.core.errors import ModelError
from callsmith.core.events import CallArguments, CallStarted, ModelEvent, Stopped, Text, Thought
from callsmith.core.values import Request, Usage
from callsmith.evals.check.advice import identify
from callsmith.evals.check.exchange import Exchange
from callsmith.evals.check.probe import markup, writes_bare_calls
from callsmith.evals.check.run import QUICK, CheckReport, check, known_probes
from callsmith.server.app import create_app
from tests.evals.check.ideal import Fault, Faulty, IdealModel
from tests.serving import served, served_apart


async def checked(app: Any, **options: Any) -> CheckReport:
    async with served(app) as url:
        return await check(f"{url}/v1", **options)


def application(model: Any = None) -> Any:
    return create_app({"ideal": model or IdealModel()})


async def test_an_address_without_a_path_gets_the_version() -> None:
    async with served(application()) as url:
        report = await check(url, only=["answers.whole"])
    assert report.url == f"{url}/v1"
    assert report.dialects == ["chat", "responses", "anthropic", "ollama"]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions"])
async def test_a_server_that_wants_a_key_is_not_checked_without(path: str) -> None:
    def locked(request: dict[str, Any], body: bytes) -> bytes | tuple[int, bytes]:
        return (401, b'{"error": {"message": "no key"}}') if request["path"] == path else body

    with pytest.raises(ModelError, match="--key"):
        await checked(Faulty(application(), locked))


async def test_a_server_that_is_loading_is_said_to_be() -> None:
    loading: Fault = lambda request, body: (503, b'{"error": "Loading model"}') if "models" in request["path"] else body  # noqa: E731
    with pytest.raises(ModelError, match="Loading model"):
        await checked(Faulty(application(), loading))


async def test_a_model_that_is_not_there_is_told_in_the_servers_words() -> None:
    with pytest.raises(ModelError, match="nonsense"):
        await checked(application(), model="nonsense")


class _Dying:
    """Passes on what comes, and closes for good at the first request that has tools."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._server: asyncio.Server | None = None

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        yield f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        body = await reader.readexactly(length)
        if b'"tools"' in body:
            assert self._server is not None
            self._server.close()
        else:
            inner, outer = await asyncio.open_connection("127.0.0.1", self._port)
            outer.write(head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + body)
            writer.write(await inner.read())
            await writer.drain()
            outer.close()
        writer.close()


async def test_a_server_that_dies_ends_the_check_with_what_was_found() -> None:
    async with served(application()) as url, _Dying(url).listening() as dying:
        report = await check(f"{dying}/v1", dialects=["chat"])
    (wrong,) = report.of("wrong")
    assert report.findings[-1] is wrong
    assert wrong.name in report.stopped
    assert 5 < len(report.findings) < len(report.planned)
    assert report.of("right")


class _Sleeping(IdealModel):
    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        if request.tools:
            await asyncio.sleep(60)
        async for event in super().stream(request):
            yield event


async def test_answers_that_come_too_late_are_no_fault_and_end_the_check() -> None:
    report = await checked(application(_Sleeping()), dialects=["chat"], only=["answers.whole", "calls.*"], seconds=1)
    assert not report.of("wrong")
    assert [finding.verdict for finding in report.findings] == ["right", "skipped", "skipped", "skipped"]
    assert "--timeout" in report.stopped


class _Pondering(IdealModel):
    """Reasons until its tokens are used up, wherever it has tools."""

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        if request.tools:
            for event in (Thought("hm " * 3), Stopped("length", Usage(prompt=20, completion=7))):
                yield event
            return
        async for event in super().stream(request):
            yield event


_OPEN = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par'


@pytest.mark.parametrize(
    ("content", "finish", "verdict"),
    [
        ('{"city": "Par', "length", "weak"),
        ('{"city": "Paris"}.json\n{"city": "Par', "length", "wrong"),
        (_OPEN, "length", "weak"),
        (f'{_OPEN}is"}}}}\n</tool_call>\nI have', "length", "wrong"),
        (_OPEN, "stop", "wrong"),
        ("In Paris the", "length", "wrong"),
    ],
)
async def test_a_required_call_that_is_cut_is_no_fault_and_prose_is_one(content: str, finish: str, verdict: str) -> None:
    message = json.dumps({"message": {"role": "assistant", "content": content}, "finish_reason": finish})
    fault: Fault = lambda _, body: f'{{"choices": [{message}]}}'.encode()  # noqa: E731
    report = await checked(Faulty(application(), fault), model="ideal", dialects=["chat"], only=["choices.required"])
    assert [finding.verdict for finding in report.findings] == [verdict]


class _Cut(IdealModel):
    """Calls until its tokens are used up, wherever it has tools; where calls are shown as text, that is all there is."""

    def __init__(self, *events: ModelEvent) -> None:
        self._events = events

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        for event in (*self._events, Stopped("length", Usage(prompt=20, completion=7))):
            yield event


@pytest.mark.parametrize(
    "events", [[Text(_OPEN)], [CallStarted(0, "get_weather", "call_0"), CallArguments(0, '{"city": "Par')]], ids=["text", "call"]
)
async def test_a_call_of_the_model_that_is_cut_is_no_fault(events: list[ModelEvent]) -> None:
    def as_text(
        request: dict[str, Any], body: bytes
    ) -> bytes:  # as servers do that show in a whole answer what they could not read
        answer = {} if request.get("stream") else json.loads(body)
        if "choices" in answer:
            answer["choices"][0]["message"] = {"role": "assistant", "content": _OPEN}
        return json.dumps(answer).encode() if "choices" in answer else body

    report = await checked(Faulty(application(_Cut(*events)), as_text), dialects=["chat"], only=["calls.*"])
    assert not report.of("wrong")
    names = {finding.probe.name for finding in report.of("weak")}
    assert {"calls.read", "calls.finish", "calls.finish_in_stream", "calls.text", "calls.stream_is_whole"} <= names


async def test_a_whole_answer_is_asked_for_in_so_many_words() -> None:
    bodies = list[dict[str, Any]]()

    def streams_by_default(body: dict[str, Any], answer: bytes) -> bytes:
        bodies.append(body)
        return answer if "stream" in body or "model" not in body else b'data: {"object": "a stream"}\n\n'

    report = await checked(Faulty(application(), streams_by_default), only=["answers.*"])
    assert not report.of("wrong")
    streams = {(item["path"], item["stream"]) for item in bodies if "model" in item}
    assert len(streams) == 2 * len(report.dialects)


async def test_reasoning_that_is_cut_is_no_fault() -> None:
    report = await checked(application(_Pondering()), dialects=["chat"], only=["choices.*", "calls.*", "schemas.*"])
    assert not report.of("wrong")
    assert {"choices.required", "choices.named", "schemas.enum"} <= {finding.probe.name for finding in report.of("weak")}


class _Bare(IdealModel):
    """Writes its calls as JSON without markers."""

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        text = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
        yield Text(text if request.tools and request.choice.mode != "required" else "Hello!")
        yield Stopped("stop", Usage(prompt=20, completion=7))


@pytest.mark.parametrize(("name", "verdict"), [("ideal", "weak"), ("qwen2.5-coder-0.5b", "weak"), ("llama-3.2-1b", "wrong")])
async def test_calls_without_markers_are_a_fault_only_where_models_are_taught_them(name: str, verdict: str) -> None:
    report = await checked(create_app({name: _Bare()}), dialects=["chat"], only=["calls.read", "calls.read_in_stream"])
    assert [finding.verdict for finding in report.findings] == [verdict, verdict]


async def test_a_history_is_taken_whatever_the_model_makes_of_it() -> None:
    report = await checked(application(_Bare()), dialects=["chat"], only=["history.*"])
    weak = {finding.probe.name for finding in report.of("weak")}
    assert weak == {"history.result", "history.result_in_stream", "history.two_results"}
    assert len(report.of("right")) == len(report.findings) - len(weak)


async def test_a_model_that_stops_before_the_limit_is_no_fault() -> None:
    report = await checked(application(_Bare()), only=["answers.max_tokens"])
    assert {finding.verdict for finding in report.findings} == {"weak"}


@pytest.mark.parametrize(("dialect", "verdict"), [("chat", "skipped"), ("anthropic", "wrong")])
async def test_servers_may_leave_roles_to_the_template_where_the_api_does_not_name_them(dialect: str, verdict: str) -> None:
    always_ok: Fault = lambda _, body: (200, body) if b'"error"' in body else body  # noqa: E731
    report = await checked(Faulty(application(), always_ok), dialects=[dialect], only=["errors.unknown_role"])
    assert [finding.verdict for finding in report.findings] == [verdict]


async def test_a_server_that_is_busy_has_refused_no_mistake() -> None:
    busy: Fault = lambda request, body: body if "models" in request["path"] else (429, b'{"error": {"message": "slow down"}}')  # noqa: E731
    report = await checked(Faulty(application(), busy), dialects=["chat"])
    assert [finding.probe.name for finding in report.of("right")] == ["answers.models"]


def test_markers_are_those_that_a_model_was_taught() -> None:
    assert "<tool_call>" in markup("qwen2.5-7b") and "[TOOL_CALLS]" not in markup("qwen2.5-7b")
    assert {"<tool_call>", "[TOOL_CALLS]", "</think>", "<|im_end|>"} <= set(markup("somebodys-model"))
    assert writes_bare_calls("Llama-3.1-8B") and not writes_bare_calls("mistral-7b")


def test_a_quick_check_has_probes_of_every_group() -> None:
    names = {known_probe.name for known_probe in known_probes()}
    assert set(QUICK) <= names
    assert {name.partition(".")[0] for name in QUICK} == {name.partition(".")[0] for name in names}
    with served_apart(application()) as url:
        quick = CliRunner().invoke(cli, ["check", url, "--quick", "--dialect", "chat"])
    assert quick.exit_code == 0, quick.output
    assert f"{len(QUICK)} right" in quick.output


def _heed_sigint() -> None:  # what runs in the background ignores it, and so does what is started there
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_tells_what_was_found_so_far(tmp_path: Path) -> None:
    report_file = tmp_path / "found.json"
    with served_apart(application(_Sleeping())) as url:
        command = [sys.executable, "-m", "callsmith", "check", url, "--dialect", "chat", "--json", str(report_file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=_heed_sigint) as checking:
            assert checking.stdout is not None
            seen = ""
            while "✓✓✓✓" not in seen:
                seen += checking.stdout.read(1)
                assert checking.poll() is None, seen
            checking.send_signal(signal.SIGINT)
            seen += checking.stdout.read()
    assert checking.returncode == 130, seen
    assert "interrupted" in seen
    assert json.loads(report_file.read_text())["counts"]["right"] >= 4


async def test_only_the_probe_of_usage_asks_a_stream_to_count() -> None:
    refusing: Fault = lambda request, body: (422, b'{"detail": "stream_options"}') if "stream_options" in request else body  # noqa: E731
    report = await checked(Faulty(application(), refusing), dialects=["chat"], only=["answers.*", "calls.*"])
    assert [finding.probe.name for finding in report.of("wrong")] == ["answers.usage_in_stream"]


@pytest.mark.parametrize(("dialect", "refused"), [("chat", True), ("responses", False), ("anthropic", False)])
async def test_a_seed_is_sent_only_where_the_api_has_one(dialect: str, refused: bool) -> None:
    strict: Fault = lambda request, body: (400, b'{"error": {"message": "unknown field"}}') if "seed" in request else body  # noqa: E731
    report = await checked(Faulty(application(), strict), dialects=[dialect], only=["answers.whole"])
    assert bool(report.of("wrong")) is refused


@pytest.mark.parametrize(("spoilt", "verdict"), [((0, 1, 2), "wrong"), ((0, 1), "skipped"), ((0,), "skipped")])
async def test_a_stream_is_wrong_if_it_is_never_the_whole_answer(spoilt: tuple[int, ...], verdict: str) -> None:
    numbers = count()

    def drifting(request: dict[str, Any], body: bytes) -> bytes:
        if not request.get("stream") or (number := next(numbers)) not in spoilt:
            return body
        return body.replace(b'"delta":{"content":"lo!', b'"delta":{"content":"%d' % number)

    report = await checked(Faulty(application(), drifting), dialects=["chat"], only=["answers.stream_is_whole"])
    assert [finding.verdict for finding in report.findings] == [verdict]


async def test_no_connection_is_used_twice() -> None:
    inner, headers = application(), list[bytes]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers.append(dict(scope.get("headers", ())).get(b"connection", b""))
        await inner(scope, receive, send)

    await checked(app, dialects=["chat"], only=["answers.whole"])
    assert {item for item in headers if item} == {b"close"} and len(headers) == 3


def test_a_proxy_is_known_by_its_answers() -> None:
    listed = Exchange("GET", "models", None, received=b'{"data": [{"id": "x", "owned_by": "vllm"}]}')
    assert identify(listed) == "vLLM"
    assert identify(listed, [Exchange("POST", "chat/completions", {}, headers={"x-litellm-version": "1"})]) == "LiteLLM"
