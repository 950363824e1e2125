"""Two processes of one identity: the second is refused, unless it only calls."""

import asyncio

import pytest

pytest.importorskip("jwt")

from callsmith.bus.descriptor import Descriptor
from callsmith.bus.opening import open_bus
from callsmith.bus.port import CapabilityCall
from callsmith.bus.trust.authorize import Authorizer
from callsmith.bus.trust.identity import Identity
from callsmith.core.errors import UsageError
from tests.nats_server import NatsServer
from tests.waiting import until

pytestmark = pytest.mark.nats


async def answer(call: CapabilityCall) -> dict[str, object]:
    return {"output": {"who": call.authority.subject}, "meta": {}}


async def test_a_second_process_of_a_node_is_refused_and_the_first_goes_on(server: NatsServer) -> None:
    node, other = Identity.create(), Identity.create()
    authorizer = Authorizer(node.node_id, nodes={other.node_id: "member"})
    async with open_bus(server.url, identity=node, authorizer=authorizer) as first:
        first.register(Descriptor("experimental.who"), answer)
        second = open_bus(server.url, identity=node)
        with pytest.raises(UsageError, match="another process of this identity"):
            await second.__aenter__()
        async with open_bus(server.url, identity=other) as caller:
            await until(lambda: caller.offers("experimental.who"))
            assert (await caller.call("experimental.who", (1, 0), {}))["output"] == {"who": other.node_id}


async def test_one_that_only_calls_may_run_beside_its_node(server: NatsServer) -> None:
    node, other = Identity.create(), Identity.create()
    known = Authorizer(other.node_id, nodes={node.node_id: "member"})
    async with (
        open_bus(server.url, identity=other, authorizer=known) as provider,
        open_bus(server.url, identity=node) as serving,
    ):
        provider.register(Descriptor("experimental.who"), answer)
        serving.register(Descriptor("experimental.mine"), answer)
        await until(lambda: provider.offers("experimental.mine"))
        async with open_bus(server.url, identity=node, calls_only=True) as caller:
            await until(lambda: caller.offers("experimental.who"))
            assert (await caller.call("experimental.who", (1, 0), {}))["output"] == {"who": node.node_id}
        await asyncio.sleep(1.5)
        assert provider.offers("experimental.mine")


async def test_a_node_that_was_restarted_is_no_twin_of_itself(server: NatsServer) -> None:
    node = Identity.create()
    for _ in range(2):
        async with open_bus(server.url, identity=node):
            pass
