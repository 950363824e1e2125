"""`/v1/upstreams`: the other servers that answer for models, and which of them get no new requests.

    GET        {"upstreams": {"m": [{"url": "http://gpu1:8000/v1", "state": "up", "answering": 3, …}]}}
    POST       {"url": "http://gpu1:8000/v1", "draining": true}: it finishes what it is answering, and gets no more

Only an admin's key may see and change them.
"""

from collections.abc import Sequence
from dataclasses import asdict

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callsmith.core.errors import UnknownName
from callsmith.core.ports import UpstreamStatus, model_info
from callsmith.core.values import Json
from callsmith.server.http.request_context import is_admin
from callsmith.server.http.streams import JsonResponse
from callsmith.server.service import Service
from callsmith.wire.fields import Fields


def routes(service: Service) -> list[Route]:
    """The route of the upstreams."""

    async def upstreams(request: Request) -> Response:
        if not is_admin():
            raise HTTPException(403, "only a key with the scope admin may see the upstreams")
        return JsonResponse({"upstreams": describe_upstreams(service)})

    async def drain(request: Request) -> Response:
        if not is_admin() or (service.settings.open and not service.settings.keys):
            raise HTTPException(403, "only a key with the scope admin may drain an upstream")
        fields = Fields.of(await service.bodies.read(request), "")
        url, draining = fields.required_text("url"), fields.flag("draining")
        if draining is None:
            raise fields.error("draining", "is required: true, or false to send it requests again")
        _drain(service, url, draining)
        return JsonResponse({"upstreams": describe_upstreams(service)})

    return [Route("/v1/upstreams", upstreams), Route("/v1/upstreams", drain, methods=["POST"])]


def visible_upstreams(service: Service) -> dict[str, Sequence[UpstreamStatus]]:
    """The upstreams of each model that has some, where the caller may see them."""
    upstreams_of = {name: model_info(model).upstreams for name, model in service.models.all.items()} if is_admin() else {}
    return {name: upstreams.status() for name, upstreams in upstreams_of.items() if upstreams is not None}


def describe_upstreams(service: Service) -> dict[str, Json]:
    """The upstreams of each model, as JSON."""
    return {name: [asdict(server) for server in servers] for name, servers in visible_upstreams(service).items()}


def _drain(service: Service, url: str, draining: bool) -> None:
    """Drain a server for every model that it answers for."""
    known = visible_upstreams(service)
    meant = [name for name, servers in known.items() if url.rstrip("/") in {server.url for server in servers}]
    if not meant:
        raise UnknownName("upstream", url, {server.url for servers in known.values() for server in servers}, field="url")
    for name in meant:
        upstreams = model_info(service.models.all[name]).upstreams
        if upstreams is not None:
            upstreams.drain(url, draining)
