"""What has happened so far: `/metrics` for monitoring, `/v1/turns` and `/v1/telemetry` for persons, `/v1/audit` for admins.

    GET /metrics                              Prometheus' text format: what a trace has counted
    GET /v1/turns?limit=20                    a caller's latest turns; an admin's key sees those of all
    GET /v1/telemetry?minutes=60              what they come to
    GET /v1/audit?after=120&limit=100         (also: subject, tool, event) what tools have done, and what persons have decided

    {"object": "list", "data": [{"number": 121, "at": 1780000000.2, "event": "executed", "name": "pay", "subject": "ada", …}],
     "last": 121, "has_more": false}

The latest turns of each caller are in memory (`server.recent_turns`). What was said is in none of them, and the audit log has the
arguments of executions as hashes.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import accumulate
from typing import TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.ports import UpstreamStatus
from callsmith.core.values import Json
from callsmith.models.router import LazyModel
from callsmith.runtime.telemetry.summary import summarize
from callsmith.runtime.telemetry.trace import BUCKETS, Counters, Histogram
from callsmith.server.http.keys import matches
from callsmith.server.http.pagination import read_number
from callsmith.server.http.request_context import caller, current_request, is_admin
from callsmith.server.http.streams import JsonResponse
from callsmith.server.pipeline import CallerTurn
from callsmith.server.routes.health import visible_upstreams
from callsmith.server.service import Service
from callsmith.server.store import AuditEntry
from callsmith.wire.extensions import write_decision

Samples: TypeAlias = Mapping[tuple[str, ...], float]  # numbers by the values of their labels

_MOST_LISTED = 1_000  # turns or entries in one answer
_MOST_MINUTES = 24 * 60
_LAST = 10**18 - 1  # the largest number an entry can have
_FILTERS = {"subject": ("subject",), "tool": ("name", "tool"), "event": ("event",)}  # fields of an entry that are compared


def routes(service: Service) -> list[Route]:
    async def metrics(request: Request) -> Response:
        lazy = {name: model for name in service.models.visible() if isinstance(model := service.models.all[name], LazyModel)}
        states = (
            *_of_loading(lazy),
            *_of_upstreams(visible_upstreams(service)),
            *(metric for part in service.parts for metric in part.metrics()),
        )
        content, kind = exposition(_visible_counters(service.answers.trace.counters()), request.headers.get("accept", ""), states)
        return Response(content, headers={"content-type": kind})

    async def turns(request: Request) -> Response:
        limit = read_number(request, "limit", 20, _MOST_LISTED)
        return JsonResponse({"object": "list", "data": [_view(recorded) for recorded in _visible_turns(service)[:limit]]})

    async def telemetry(request: Request) -> Response:
        minutes = read_number(request, "minutes", 60, _MOST_MINUTES)
        return JsonResponse(asdict(summarize((recorded.turn for recorded in _visible_turns(service)), time.time(), minutes)))

    async def audit(request: Request) -> Response:
        if not is_admin() or (service.settings.open and not service.settings.keys):
            raise HTTPException(403, "only a key with the scope admin may read the audit log")
        after, limit = read_number(request, "after", 0, _LAST, least=0), read_number(request, "limit", 100, _MOST_LISTED)
        read = service.audit.read if service.audit else service.store.audit
        entries = await read(after=after, limit=limit)
        data = [{"number": entry.number, "at": entry.at, **entry.data} for entry in entries if _is_wanted(entry, request)]
        last = entries[-1].number if entries else after
        return JsonResponse({"object": "list", "data": data, "last": last, "has_more": len(entries) == limit})

    endpoints = {"/metrics": metrics, "/v1/turns": turns, "/v1/telemetry": telemetry, "/v1/audit": audit}
    return [Route(path, endpoint) for path, endpoint in endpoints.items()]


def exposition(counters: Counters, accept: str = "", states: Sequence[Metric] = ()) -> tuple[bytes, str]:
    """The metrics and their content type: `exposition(service.answers.trace.counters(), request.headers.get("accept", ""))`.

    `states` are metrics of what is so at the moment. Nothing is registered anywhere.
    """
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counted(counters, states))
    return encode(registry), content_type


def _visible_counters(counters: Counters) -> Counters:
    """The counters of the models and tools that the caller may use; all of them for an admin."""
    http = current_request()
    if http is None or is_admin():
        return counters
    models = {name: counts for name, counts in counters.models.items() if matches(name, http.models)}
    tools = {name: counts for name, counts in counters.tools.items() if matches(name, http.tools)}
    return replace(counters, models=models, tools=tools)


class _Counted(Collector):
    """The counters, as a registry asks for them."""

    def __init__(self, counters: Counters, states: Sequence[Metric]) -> None:
        self._counters = counters
        self._states = states

    def collect(self) -> Iterable[Metric]:
        yield from _of_models(self._counters)
        yield from _of_tools(self._counters)
        yield from self._states


def _of_models(counters: Counters) -> Iterator[Metric]:
    models = counters.models.items()
    turns = {(model, reason): number for model, counts in models for reason, number in counts.reasons.items()}
    tokens = {(model, kind): number for model, counts in models for kind, number in asdict(counts.usage).items()}
    decisions = {(model, str(calls).lower()): number for model, counts in models for calls, number in counts.decisions.items()}
    unreadable = {(model,): counts.unreadable for model, counts in models}
    first = {model: counts.first for model, counts in models}
    yield _counter("turns", "Turns, by how they ended.", turns, "model", "reason")
    yield _counter("tokens", "Tokens; cached ones are among the prompt's.", tokens, "model", "kind")
    yield _counter("retries", "Answers asked for once more.", {(model,): counts.retries for model, counts in models}, "model")
    yield _counter("unreadable", "What began like a call and was none.", unreadable, "model")
    yield _counter("decisions", "Whether to call tools, decided.", decisions, "model", "calls")
    yield _histogram("first_event_seconds", "Time to the first event.", first, "model")
    yield _histogram("turn_seconds", "How long turns take.", {model: counts.seconds for model, counts in models}, "model")


def _of_loading(models: Mapping[str, LazyModel]) -> Iterator[Metric]:
    statuses = [((name,), model.status, model.memory) for name, model in models.items()]
    failures = {name: status.failures for name, status, _ in statuses}
    unloads = {name: status.unloads for name, status, _ in statuses}
    is_loaded = {name: int(status.state == "loaded") for name, status, _ in statuses}
    memory = {name: memory * is_loaded[name] for name, _, memory in statuses}
    yield _counter("model_loads", "How often a model was loaded.", {name: status.loads for name, status, _ in statuses}, "model")
    yield _counter("model_load_failures", "How often a model could not be loaded.", failures, "model")
    yield _counter("model_unloads", "How often a model was unloaded.", unloads, "model")
    yield _gauge("model_loaded", "1 while a model is loaded.", is_loaded, "model")
    yield _gauge("model_memory_bytes", "Memory of a loaded model: an estimate.", memory, "model")


def _of_tools(counters: Counters) -> Iterator[Metric]:
    tools = [((tool,), counts) for tool, counts in counters.tools.items()]
    repaired = {tool: counts.repaired for tool, counts in tools}
    tokens = {tool: counts.tokens for tool, counts in tools}
    outcomes = {(*tool, outcome): number for tool, counts in tools for outcome, number in counts.outcomes.items()}
    yield _counter("tool_offered", "Turns a tool was offered in.", {tool: counts.offered for tool, counts in tools}, "tool")
    yield _counter("tool_calls", "Calls of a tool.", {tool: counts.called for tool, counts in tools}, "tool")
    yield _counter("tool_repaired", "Calls that had to be repaired to be read.", repaired, "tool")
    yield _counter("tool_cached", "Calls that a cache has answered.", {tool: counts.cached for tool, counts in tools}, "tool")
    yield _counter("tool_outcomes", "What became of a tool's calls.", outcomes, "tool", "outcome")
    yield _counter("tool_tokens", "Tokens of arguments and results: an estimate.", tokens, "tool")
    yield _histogram("tool_seconds", "How long a tool runs.", {tool: counts.seconds for (tool,), counts in tools}, "tool")


def _of_upstreams(upstreams: Mapping[str, Sequence[UpstreamStatus]]) -> Iterator[Metric]:
    servers = {(model, server.url): server for model, servers in upstreams.items() for server in servers}
    requests = {labels: server.requests for labels, server in servers.items()}
    failures = {labels: server.failures for labels, server in servers.items()}
    answering = {labels: server.answering for labels, server in servers.items()}
    is_up = {labels: server.state == "up" for labels, server in servers.items()}
    if upstreams:
        yield _counter("upstream_requests", "Requests sent to a server, retries included.", requests, "model", "upstream")
        yield _counter("upstream_failures", "Requests that failed at a server.", failures, "model", "upstream")
        yield _gauge("upstream_answering", "Requests that a server is answering.", answering, "model", "upstream")
        yield _gauge("upstream_up", "1 if a server gets new requests, else 0.", is_up, "model", "upstream")


def _counter(name: str, about: str, samples: Samples, *labels: str) -> Metric:
    return _add(CounterMetricFamily(f"callsmith_{name}", about, labels=labels), samples)


def _gauge(name: str, about: str, samples: Samples, *labels: str) -> Metric:
    return _add(GaugeMetricFamily(f"callsmith_{name}", about, labels=labels), samples)


def _add(family: CounterMetricFamily | GaugeMetricFamily, samples: Samples) -> Metric:
    for values, number in samples.items():
        family.add_metric(values, number)
    return family


def _histogram(name: str, about: str, histograms: Mapping[str, Histogram], label: str) -> Metric:
    family, bounds = HistogramMetricFamily(f"callsmith_{name}", about, labels=(label,)), [*map(str, BUCKETS), "+Inf"]
    for value, histogram in histograms.items():
        family.add_metric((value,), list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True)), histogram.total)
    return family


def _visible_turns(service: Service) -> list[CallerTurn]:
    """The turns that the caller may see, the latest first."""
    return service.answers.turns.latest(None if is_admin() else (caller(),))


def _view(recorded: CallerTurn) -> Json:
    whose = {"caller": recorded.caller} if recorded.caller else {}
    return {**asdict(recorded.turn), **write_decision(recorded.turn.decision), "request_id": recorded.request, **whose}


def _is_wanted(entry: AuditEntry, request: Request) -> bool:
    query = request.query_params
    return all(
        any(entry.data.get(field) == query[name] for field in fields) for name, fields in _FILTERS.items() if name in query
    )
