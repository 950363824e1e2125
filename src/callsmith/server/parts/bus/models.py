"""The server's models on its bus: `llm.chat` and `llm.tools.call`, with the keys, places and records that all requests have."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.port import CapabilityCall
from callsmith.capabilities.llm import LlmService
from callsmith.core.ports import Model
from callsmith.server.http.request_context import current_request
from callsmith.server.service import Service
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
