"""What every bus does, with its capabilities on a server that is called over HTTP: by WebSocket, and without."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.opening import open_bus
from callsmith.server.app import create_app
from callsmith.server.parts.bus.part import BusPart
from callsmith.server.settings import Settings
from tests.bus.contract import QUERY, BusContract, BusWith, answer
from tests.fakes import FakeModel
from tests.server.asking import says
from tests.serving import served


class TestHttp(BusContract):
    @pytest.fixture(params=["by sockets", "by events"])
    async def bus_with(self, request: pytest.FixtureRequest) -> AsyncIterator[BusWith]:
        settings = Settings(websockets=32 if request.param == "by sockets" else 0)
        async with AsyncExitStack() as stack:

            async def make(descriptor: Descriptor = QUERY, handler: Any = answer) -> CapabilityBus:
                provider = CapabilityBus()
                provider.register(descriptor, handler)
                app = create_app({"m": FakeModel(says("hi"))}, parts=[BusPart(provider)], settings=settings)
                url = await stack.enter_async_context(served(app))
                return await stack.enter_async_context(open_bus(url))

            yield make
