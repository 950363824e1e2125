"""BusPart: the capability bus of a server, the tools that its capabilities run, and the models that are offered on it."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import ClassVar, Self

from prometheus_client.core import CounterMetricFamily, Metric

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.port import Authenticator, CapabilityCall
from callsmith.capabilities.llm import LlmService
from callsmith.core.ports import Model, Toolset
from callsmith.server.http.keys import matches
from callsmith.server.http.request_context import current_request, is_admin
from callsmith.server.parts import Part
from callsmith.server.parts.bus.node import bus_tools, keep_connected, open_node
from callsmith.server.parts.bus.settings import BusSettings
from callsmith.server.service import Service
from callsmith.server.settings import Settings
from callsmith.wire.capability.chat import NAME


class VisibleModels(Mapping[str, Model]):
    """The models that the caller may use, by their names and by their aliases."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __iter__(self) -> Iterator[str]:
        return iter([*self._service.models.visible(), *self._service.models.visible_aliases()])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._service.models.resolve(name) in self._service.models.visible()

    def __getitem__(self, name: str) -> Model:
        if name not in self:
            raise KeyError(name)
        return self._service.models.all[self._service.models.resolve(name)]


def offer_models(bus: CapabilityBus, service: Service) -> None:
    """Offer the models on the bus, unless it has a chat of its own. Those who call over HTTP have a place already."""
    settings = service.settings
    if any(offer.is_local for offer in bus.offers(NAME)):
        return

    def admission(call: CapabilityCall) -> AbstractAsyncContextManager[object]:
        if current_request() is not None:
            return nullcontext()
        service.answers.rates.admit(call.authority.subject, settings.callers)
        return service.answers.gate.admit(settings.queue, call.authority.subject, settings.callers, settings.request_seconds)

    LlmService(
        bus,
        VisibleModels(service),
        limits=settings.limits,
        admission=admission,
        recorder=service.answers.recorder,
        max_concurrent=settings.queue,
        shares_prompt_cache=settings.llm.share_prompt_cache,
    ).register()


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
