"""Export of spans: a tracer provider of OpenTelemetry's SDK, configured by the standard OTEL_* environment variables.

OTEL_TRACES_EXPORTER names the exporters (otlp, console, none, or any that is installed; otlp if it is not set),
OTEL_EXPORTER_OTLP_ENDPOINT where OTLP goes, OTEL_SERVICE_NAME the service. All other variables are read by the SDK itself:
headers, batches, samplers, resource attributes, OTEL_SDK_DISABLED.
"""

import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING

from callsmith.core.errors import MissingExtra, UnknownName

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

SERVICE = "callsmith"  # the service's name, where the environment gives none
_EXPORTERS = "OTEL_TRACES_EXPORTER"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_GROUP = "opentelemetry_traces_exporter"  # the entry points that exporters are installed under
_UNKNOWN = "unknown_service"  # what the SDK calls a service that has no name


def tracer_provider() -> "TracerProvider":
    """The provider that the environment describes. `shutdown()` exports what is left."""
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise MissingExtra("otel", "OpenTelemetry")
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, _UNKNOWN)).startswith(_UNKNOWN):
        resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
    exporters = list(_exporters())
    provider = TracerProvider(resource=resource)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporters() -> "Iterator[SpanExporter]":
    installed = {point.name: point for point in entry_points(group=_GROUP)}
    for name in (os.environ.get(_EXPORTERS) or "otlp").split(","):
        wanted = name.strip()
        if wanted.lower() == "none":
            continue
        wanted = _otlp() if wanted == "otlp" else wanted
        if wanted == "otlp_proto_http" and wanted not in installed:
            raise MissingExtra("otel", "the OTLP exporter of OpenTelemetry")
        if wanted not in installed:
            raise UnknownName(f"exporter in {_EXPORTERS}", wanted, [*installed, "otlp", "none"])
        yield installed[wanted].load()()


def _otlp() -> str:
    """The exporter of the wanted OTLP protocol: over HTTP, unless gRPC is asked for."""
    protocol = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), "http/protobuf")
    return {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}.get(protocol.strip(), protocol)
