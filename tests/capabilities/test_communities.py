"""Two communities on a real NATS server, and a gateway that is a node of both: what crosses needs a token of the other side.

The user and the model are of the village, the corpus is the town's. The town knows nobody of the village; it has given the user a
token, which the gateway may use on the user's behalf.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("jwt")

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.opening import open_bus
from callsmith.bus.port import CapabilityCall
from callsmith.bus.reach import bound_tool
from callsmith.bus.trust.authorize import Authorizer
from callsmith.bus.trust.identity import Identity
from callsmith.bus.trust.scopes import Scope
from callsmith.bus.trust.tokens import issue
from callsmith.bus.trust.verification import TokenVerifier
from callsmith.capabilities.executor import ToolExecutor
from callsmith.capabilities.llm import LlmService
from callsmith.core.capability.authority import Authority
from callsmith.core.values import Call
from callsmith.tools.define import object_, string
from tests.capabilities.chatting import called, chat, scripted_model
from tests.nats_server import running_nats
from tests.waiting import until

pytestmark = pytest.mark.nats

SEARCH = bound_tool("search", "Search the town's documents.", object_({"query": string()}), "rag.query@1.0")


@dataclass
class Communities:
    """The user's bus in the village, the town's keys, and the calls that its corpus has answered."""

    user: Identity
    gateway: Identity
    town: Identity
    asking: CapabilityBus
    answered: list[CapabilityCall] = field(default_factory=list[CapabilityCall])

    def executor(self, *capabilities: str) -> ToolExecutor:
        """What the user runs tools with: a token of the town for these capabilities, or none."""
        token = ""
        if capabilities:
            scope, gateway = Scope(capabilities), self.gateway.node_id
            token = issue(self.town, subject=self.user.node_id, audience=gateway, scope=scope, seconds=600).text
        return ToolExecutor(self.asking, [SEARCH], authority=Authority(self.user.node_id, token=token))


@pytest.fixture
async def communities() -> AsyncIterator[Communities]:
    user, gateway, corpus, town = (Identity.create() for _ in range(4))
    async with AsyncExitStack() as stack:
        server = stack.enter_context(running_nats())

        async def node(identity: Identity, community: str) -> CapabilityBus:
            verifier = TokenVerifier(identity.node_id, community, {town.node_id: "member"})
            authorizer = Authorizer(identity.node_id, community, verifier=verifier)
            bus = open_bus(server.url, identity=identity, authorizer=authorizer, community=community)
            return await stack.enter_async_context(bus)

        asking, searching = await node(user, "village"), await node(corpus, "town")
        inside, outside = await node(gateway, "village"), await node(gateway, "town")
        opened = Communities(user, gateway, town, asking)

        async def answer(call: CapabilityCall) -> dict[str, Any]:
            opened.answered.append(call)
            return {"output": {"chunks": ["The town hall opens at 9."]}, "meta": {}}

        async def pass_on(call: CapabilityCall) -> Any:
            return await outside.call("rag.query", (1, 0), call.body, authority=call.authority)

        searching.register(Descriptor("rag.query", trust_required="member"), answer)
        inside.register(Descriptor("rag.query", trust_required="member"), pass_on)
        _, model = scripted_model(called(("search", {"query": "hall"})), "At 9.")
        LlmService(asking, {"m": model}).register()
        await until(lambda: asking.offers("rag.query") and outside.offers("rag.query"))
        yield opened


@pytest.mark.req("R98")
async def test_a_tool_of_another_community_runs_with_a_token_of_it(communities: Communities) -> None:
    message = await communities.executor("rag.query@1.0").run_chat_with_tools(chat("When does the town hall open?"))
    assert message["content"] == "At 9."
    (call,) = communities.answered
    assert (call.authority.subject, call.authority.trust) == (communities.user.node_id, "member")
    assert communities.gateway.node_id in call.authority.via


@pytest.mark.req("R98")
@pytest.mark.parametrize(("capabilities", "code"), [((), "unauthorized"), (("market.list@1.0",), "token_scope_insufficient")])
async def test_without_a_token_for_it_nothing_crosses(communities: Communities, capabilities: Any, code: str) -> None:
    result = await communities.executor(*capabilities).dispatch(Call("search", {"query": "hall"}, "c1"))
    assert (result.ok, result.code, communities.answered) == (False, code, [])


@pytest.mark.req("R98")
async def test_communities_on_one_server_hear_of_each_other_only_by_the_gateway(communities: Communities) -> None:
    offered = {offer.node for offer in communities.asking.offers("rag.query")}
    assert offered == {communities.gateway.node_id}
