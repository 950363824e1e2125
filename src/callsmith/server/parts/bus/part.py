"""BusPart: the capability bus of a server, the tools that its capabilities run, and the models that are offered on it."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import ClassVar, Self

from prometheus_client.core import CounterMetricFamily, Metric

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.port import Authenticator
from callsmith.core.ports import Toolset
from callsmith.server.http.keys import matches
from callsmith.server.http.request_context import current_request, is_admin
from callsmith.server.parts import Part
from callsmith.server.parts.bus.models import offer_models
from callsmith.server.parts.bus.node import bus_tools, keep_connected, open_node
from callsmith.server.parts.bus.settings import BusSettings
from callsmith.server.service import Service
from callsmith.server.settings import Settings


@dataclass(frozen=True, slots=True)
class BusPart(Part):
    """The bus whose capabilities can be called at `/bus/v1/call`: `create_app(models, parts=[BusPart(bus)])`.

    The `authenticator` is for calls that are signed or have a token: what these say can narrow what the caller's key allows, and
    never widens it. None: such calls are refused.
    """

    name: ClassVar[str] = "bus"

    bus: CapabilityBus = field(default_factory=CapabilityBus)
    authenticator: Authenticator | None = None

    @classmethod
    def open(cls, settings: Settings) -> Self:
        node = open_node(settings.part(BusSettings))
        return cls(node.bus, node.authenticator)

    def tools(self, settings: Settings) -> Toolset | None:
        return bus_tools(self.bus, settings.part(BusSettings).tools)

    def attach(self, service: Service) -> None:
        self.bus.audit = None if service.settings.audit == "off" else service.audit
        offer_models(self.bus, service)

    def running(self) -> AbstractAsyncContextManager[None]:
        return keep_connected(self.bus)

    async def close(self) -> None:
        await self.bus.close()

    def metrics(self) -> Iterator[Metric]:
        http, counts = current_request(), self.bus.trace.counts()
        calls = CounterMetricFamily(
            "callsmith_bus_calls", "Calls of capabilities, by how they ended.", labels=("capability", "result")
        )
        for (capability, result), number in counts.items():
            if http is None or is_admin() or (http.key is not None and matches(capability, http.key.capabilities)):
                calls.add_metric((capability, result), number)
        yield from (calls,) if counts else ()


PART = BusPart
