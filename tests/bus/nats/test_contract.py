"""What every bus does, between two nodes by a NATS server: without identities, and with them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.opening import open_bus
from callsmith.bus.trust.authorize import Authorizer
from callsmith.bus.trust.identity import Identity
from tests.bus.contract import QUERY, BusContract, BusWith, answer
from tests.nats_server import NatsServer
from tests.waiting import until

pytestmark = pytest.mark.nats


class TestNats(BusContract):
    @pytest.fixture(params=["unsigned", "signed"])
    async def bus_with(self, server: NatsServer, request: pytest.FixtureRequest) -> AsyncIterator[BusWith]:
        numbers = count()
        async with AsyncExitStack() as stack:

            async def make(descriptor: Descriptor = QUERY, handler: Any = answer) -> CapabilityBus:
                community = f"c{next(numbers)}"
                make_pair = _pair if request.param == "unsigned" else _signed_pair
                provider, caller = make_pair(server.url, community)
                provider.register(descriptor, handler)
                await stack.enter_async_context(provider)
                await stack.enter_async_context(caller)
                await until(lambda: caller.offers(descriptor.name))
                return caller

            yield make


def _pair(url: str, community: str) -> tuple[CapabilityBus, CapabilityBus]:
    provider, caller = (open_bus(url, community=community, trust_unsigned="member") for _ in range(2))
    return provider, caller


def _signed_pair(url: str, community: str) -> tuple[CapabilityBus, CapabilityBus]:
    provider, caller = Identity.create(), Identity.create()
    authorizer = Authorizer(provider.node_id, community, nodes={caller.node_id: "member"})
    return (
        open_bus(url, community=community, identity=provider, authorizer=authorizer),
        open_bus(url, community=community, identity=caller),
    )
