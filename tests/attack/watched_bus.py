"""A server with a bus whose handlers are watched: what its callers leave behind."""

import asyncio
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from websockets.asyncio.client import ClientConnection

from callsmith.server.app import create_app
from callsmith.server.parts.bus.part import BusPart
from callsmith.server.service import Service
from callsmith.server.settings import Settings
from tests.fakes import FakeModel
from tests.server.asking import says
from tests.server.routes.bus.calling import (
    BODY,
    Scripted,
    call,
    frames_of,
    post,
    query_headers,
    scripted_bus,
    socket_to,
)
from tests.waiting import until


class Watched:
    """A server, what its handlers do, and what is left of calls that have ended."""

    def __init__(self, app: Starlette, services: list[Service], scripted: Scripted) -> None:
        self.app, self.scripted = app, scripted
        self._services = services

    async def expect_nothing_left(self) -> None:
        """No handler runs, no place is taken, no socket is counted, and no task is left."""
        (service,) = self._services
        await until(lambda: not self.scripted.running and not service.answers.gate.active)
        await until(lambda: not service.sockets.number)
        await until(lambda: not [task for task in asyncio.all_tasks() if "routes/bus" in repr(task) or "bus/local" in repr(task)])


def watch(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Watched:
    services: list[Service] = []

    class Seen(Service):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            services.append(self)

    monkeypatch.setattr("callsmith.server.app.Service", Seen)
    bus, scripted = scripted_bus()
    return Watched(
        create_app({"m": FakeModel(says("hi"))}, parts=[BusPart(bus)], settings=Settings(**settings)), services, scripted
    )


async def is_served(url: str) -> bool:
    """Whether another caller is answered, over HTTP and WebSocket."""
    async with httpx2.AsyncClient(base_url=url) as client, socket_to(url) as socket:
        await call(socket, tokens=20)
        answered = (await frames_of(socket))[-1]["event"] == "done"
        return answered and (await post(client, BODY, **query_headers())).status_code == 200


async def ended(socket: ClientConnection) -> str:
    """The code of the error that ends a call, without a word of acknowledgement."""
    return (await frames_of(socket, acks=False))[-1]["data"].get("error", "")
