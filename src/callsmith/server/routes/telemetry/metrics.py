"""`/metrics`: metrics in Prometheus' text format: what a trace has counted. Nothing is registered anywhere."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.ports import UpstreamStatus
from callsmith.models.router import LazyModel
from callsmith.runtime.telemetry.trace import BUCKETS, Counters, Histogram
from callsmith.server.http.keys import matches
from callsmith.server.http.request_context import current_request, is_admin
from callsmith.server.routes.upstreams import visible_upstreams
from callsmith.server.service import Service


def metrics_routes(service: Service) -> list[Route]:
    """The route of the metrics."""

    async def metrics(request: Request) -> Response:
        lazy = {name: model for name in service.models.visible() if isinstance(model := service.models.all[name], LazyModel)}
        states = (
            *_of_loading(lazy),
            *_of_upstreams(visible_upstreams(service)),
            *(one for part in service.parts for one in part.metrics()),
        )
        content, kind = exposition(_visible(service.answers.trace.counters()), request.headers.get("accept", ""), states)
        return Response(content, headers={"content-type": kind})

    return [Route("/metrics", metrics)]


def exposition(counters: Counters, accept: str = "", states: Sequence[Metric] = ()) -> tuple[bytes, str]:
    """The metrics and their content type: `exposition(service.answers.trace.counters(), request.headers.get("accept", ""))`.

    `states` are metrics of what is so at the moment.
    """
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counted(counters, states))
    return encode(registry), content_type


def _visible(counters: Counters) -> Counters:
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
    turns = CounterMetricFamily("callsmith_turns", "Turns, by how they ended.", labels=("model", "reason"))
    tokens = CounterMetricFamily("callsmith_tokens", "Tokens; cached ones are among the prompt's.", labels=("model", "kind"))
    retries = CounterMetricFamily("callsmith_retries", "Answers asked for once more.", labels=("model",))
    unreadable = CounterMetricFamily("callsmith_unreadable", "What began like a call and was none.", labels=("model",))
    decisions = CounterMetricFamily("callsmith_decisions", "Whether to call tools, decided.", labels=("model", "calls"))
    first = HistogramMetricFamily("callsmith_first_event_seconds", "Time to the first event.", labels=("model",))
    seconds = HistogramMetricFamily("callsmith_turn_seconds", "How long turns take.", labels=("model",))
    for model, counts in counters.models.items():
        for reason, number in counts.reasons.items():
            turns.add_metric((model, reason), number)
        usage = counts.usage
        kinds = {"prompt": usage.prompt, "completion": usage.completion, "cached": usage.cached, "reasoning": usage.reasoning}
        for kind, number in kinds.items():
            tokens.add_metric((model, kind), number)
        retries.add_metric((model,), counts.retries)
        unreadable.add_metric((model,), counts.unreadable)
        for calls, number in counts.decisions.items():
            decisions.add_metric((model, str(calls).lower()), number)
        first.add_metric((model,), _buckets(counts.first), counts.first.total)
        seconds.add_metric((model,), _buckets(counts.seconds), counts.seconds.total)
    yield from (turns, tokens, retries, unreadable, decisions, first, seconds)


def _of_loading(models: Mapping[str, LazyModel]) -> Iterator[Metric]:
    loads = CounterMetricFamily("callsmith_model_loads", "How often a model was loaded.", labels=("model",))
    failures = CounterMetricFamily("callsmith_model_load_failures", "How often a model could not be loaded.", labels=("model",))
    unloads = CounterMetricFamily("callsmith_model_unloads", "How often a model was unloaded.", labels=("model",))
    loaded = GaugeMetricFamily("callsmith_model_loaded", "1 while a model is loaded.", labels=("model",))
    memory = GaugeMetricFamily("callsmith_model_memory_bytes", "Memory of a loaded model: an estimate.", labels=("model",))
    for name, model in models.items():
        status = model.status
        is_loaded = status.state == "loaded"
        loads.add_metric((name,), status.loads)
        failures.add_metric((name,), status.failures)
        unloads.add_metric((name,), status.unloads)
        loaded.add_metric((name,), int(is_loaded))
        memory.add_metric((name,), model.memory if is_loaded else 0)
    yield from (loads, failures, unloads, loaded, memory)


def _of_tools(counters: Counters) -> Iterator[Metric]:
    offered = CounterMetricFamily("callsmith_tool_offered", "Turns a tool was offered in.", labels=("tool",))
    called = CounterMetricFamily("callsmith_tool_calls", "Calls of a tool.", labels=("tool",))
    repaired = CounterMetricFamily("callsmith_tool_repaired", "Calls that had to be repaired to be read.", labels=("tool",))
    cached = CounterMetricFamily("callsmith_tool_cached", "Calls that a cache has answered.", labels=("tool",))
    outcomes = CounterMetricFamily("callsmith_tool_outcomes", "What became of a tool's calls.", labels=("tool", "outcome"))
    tokens = CounterMetricFamily("callsmith_tool_tokens", "Tokens of arguments and results: an estimate.", labels=("tool",))
    seconds = HistogramMetricFamily("callsmith_tool_seconds", "How long a tool runs.", labels=("tool",))
    for tool, counts in counters.tools.items():
        offered.add_metric((tool,), counts.offered)
        called.add_metric((tool,), counts.called)
        repaired.add_metric((tool,), counts.repaired)
        cached.add_metric((tool,), counts.cached)
        for outcome, number in counts.outcomes.items():
            outcomes.add_metric((tool, outcome), number)
        tokens.add_metric((tool,), counts.tokens)
        seconds.add_metric((tool,), _buckets(counts.seconds), counts.seconds.total)
    yield from (offered, called, repaired, cached, outcomes, tokens, seconds)


def _of_upstreams(upstreams: Mapping[str, Sequence[UpstreamStatus]]) -> Iterator[Metric]:
    labels = ("model", "upstream")
    requests = CounterMetricFamily("callsmith_upstream_requests", "Requests sent to a server, retries included.", labels=labels)
    failures = CounterMetricFamily("callsmith_upstream_failures", "Requests that failed at a server.", labels=labels)
    answering = GaugeMetricFamily("callsmith_upstream_answering", "Requests that a server is answering.", labels=labels)
    up = GaugeMetricFamily("callsmith_upstream_up", "1 if a server gets new requests, else 0.", labels=labels)
    for model, servers in upstreams.items():
        for server in servers:
            requests.add_metric((model, server.url), server.requests)
            failures.add_metric((model, server.url), server.failures)
            answering.add_metric((model, server.url), server.answering)
            up.add_metric((model, server.url), server.state == "up")
    yield from (requests, failures, answering, up) if upstreams else ()


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*map(str, BUCKETS), "+Inf"]
    return list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
