"""`callsmith serve --otel`: spans of what is served, as OpenTelemetry's collectors get them."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import httpx2
import pytest

from callsmith.runtime.telemetry import spans

pytestmark = pytest.mark.processes

ASK = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An OpenTelemetry collector: its address, and the paths and bodies that were sent to it."""
    received: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()


@pytest.mark.req("R221")
@pytest.mark.parametrize(("service", "expected"), [(None, "callsmith"), ("desk", "desk")])
def test_spans_of_served_requests_are_exported_before_the_server_has_ended(serving, collector, monkeypatch, service, expected):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    endpoint, received = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")  # nothing is exported before the end
    if service:
        monkeypatch.setenv("OTEL_SERVICE_NAME", service)
    process, url = serving("--model", "scripted:Hi", "--otel")
    assert httpx2.post(f"{url}/v1/chat/completions", json=ASK).status_code == 200
    process.terminate()
    assert process.wait(timeout=30) == 0
    [(path, body)] = received
    assert path == "/v1/traces"
    [traces] = ExportTraceServiceRequest.FromString(body).resource_spans
    names = {attribute.key: attribute.value.string_value for attribute in traces.resource.attributes}
    assert names["service.name"] == expected
    assert [span.name for scope in traces.scope_spans for span in scope.spans] == ["chat scripted"]


def test_spans_can_be_written_to_the_console(serving, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    process, url = serving("--model", "scripted:Hi", "--set", "log.otel=true")
    httpx2.post(f"{url}/v1/chat/completions", json=ASK)
    process.terminate()
    process.wait(timeout=30)
    assert '"name": "chat scripted"' in process.stdout.read()


def test_without_the_option_no_spans_are_exported(serving, collector, monkeypatch):
    endpoint, received = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    process, url = serving("--model", "scripted:Hi")
    assert httpx2.post(f"{url}/v1/chat/completions", json=ASK).status_code == 200
    process.terminate()
    assert process.wait(timeout=30) == 0
    assert received == []


def test_an_exporter_that_is_not_installed_is_an_error_before_anything_is_served(callsmith, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "consol")
    result = callsmith("serve", "--model", "scripted:Hi", "--port", "0", "--otel")
    assert result.code == 2
    assert "did you mean 'console'" in result.err


@pytest.mark.parametrize("missing", ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"])
def test_spans_without_their_packages_say_what_to_install(callsmith, monkeypatch, missing):
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    monkeypatch.setattr(spans, "find_spec", lambda name: None if name == missing else find_spec(name))
    if "exporter" in missing:
        monkeypatch.setattr(spans, "entry_points", lambda group: ())
    result = callsmith("serve", "--model", "scripted:Hi", "--port", "0", "--otel")
    assert result.code == 2
    assert "pip install 'callsmith[otel]'" in result.err
