"""A user's token, passed on by the model's node to the node of a tool, over a real NATS server.

The corpus knows neither the user nor the model's node, only who has issued the user's token.
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
from callsmith.bus.trust.authorize import Authorizer
from callsmith.bus.trust.identity import Identity
from callsmith.bus.trust.revocations import MemoryRevocations
from callsmith.bus.trust.scopes import Scope
from callsmith.bus.trust.tokens import Token, issue
from callsmith.bus.trust.verification import TokenVerifier
from callsmith.capabilities.llm import LlmService
from callsmith.core.capability.authority import Authority
from callsmith.wire.capability.frames import Frame
from tests.capabilities.chatting import called, chat, scripted_model
from tests.nats_server import running_nats
from tests.waiting import until

pytestmark = pytest.mark.nats

TOOL = {
    "name": "search",
    "parameters_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    "bound_capability": "rag.query@1.0",
    "side_effects": False,
}


@dataclass
class Nodes:
    """The nodes, and the calls that the corpus has answered."""

    issuer: Identity
    user: Identity
    model: Identity
    asking: CapabilityBus
    revocations: MemoryRevocations
    engine: Any
    answered: list[CapabilityCall] = field(default_factory=list[CapabilityCall])

    def token(self, *capabilities: str, **limits: Any) -> Token:
        scope = Scope(capabilities or ("llm.chat@2.0", "rag.query@1.0"), **limits)
        return issue(self.issuer, subject=self.user.node_id, audience="village", scope=scope, seconds=600)

    async def ask(self, token: Token | None) -> list[Frame]:
        authority = Authority(self.user.node_id, token=token.text if token else "")
        return [frame async for frame in self.asking.stream("llm.chat", (2, 0), chat(tools=[TOOL]), authority=authority)]


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    issuer, user, model, corpus = (Identity.create() for _ in range(4))
    revocations = MemoryRevocations()

    def trusting(identity: Identity, **nodes: Any) -> Authorizer:
        verifier = TokenVerifier(identity.node_id, "village", {issuer.node_id: "member"}, revocations)
        return Authorizer(identity.node_id, "village", nodes.get("nodes"), verifier)

    async with AsyncExitStack() as stack:
        server = stack.enter_context(running_nats())

        async def start(identity: Identity, authorizer: Authorizer) -> CapabilityBus:
            bus = open_bus(server.url, identity=identity, authorizer=authorizer, community="village")
            return await stack.enter_async_context(bus)

        asking = await start(user, trusting(user))
        thinking = await start(model, trusting(model))
        searching = await start(corpus, trusting(corpus))
        engine, scripted = scripted_model(*[called(("search", {"query": "hall"})), "At 17:42."] * 3)
        opened = Nodes(issuer, user, model, asking, revocations, engine)

        async def answer(call: CapabilityCall) -> dict[str, Any]:
            opened.answered.append(call)
            return {"output": {"chunks": ["17:42"]}, "meta": {}}

        LlmService(thinking, {"m": scripted}).register()
        searching.register(Descriptor("rag.query"), answer)
        await until(lambda: asking.offers("llm.chat") and thinking.offers("rag.query"))
        yield opened


@pytest.mark.req("R98")
@pytest.mark.req("R219")
async def test_a_tool_on_a_third_node_runs_on_the_users_token(nodes: Nodes) -> None:
    frames = await nodes.ask(nodes.token())
    assert (frames[-1].event, frames[-1].data.get("stop_reason")) == ("done", "end"), frames[-1]
    (call,) = nodes.answered
    assert (call.authority.subject, call.authority.trust) == (nodes.user.node_id, "member")
    assert nodes.model.node_id in call.authority.via
    assert "17:42" in nodes.engine.asked[1].prompt.text


@pytest.mark.req("R98")
@pytest.mark.req("R170")
async def test_without_a_token_strangers_call_nothing(nodes: Nodes) -> None:
    (frame,) = await nodes.ask(None)
    assert (frame.event, frame.data["error"], nodes.answered) == ("error", "unauthorized", [])


@pytest.mark.req("R170")
async def test_a_token_for_the_model_alone_does_not_reach_the_tool(nodes: Nodes) -> None:
    frames = await nodes.ask(nodes.token("llm.chat@2.0"))
    assert (frames[-1].event, nodes.answered) == ("error", [])
    assert frames[-1].data["error"] == "token_scope_insufficient"


async def test_a_revoked_token_reaches_nothing_any_more(nodes: Nodes) -> None:
    token = nodes.token()
    assert (await nodes.ask(token))[-1].event == "done"
    nodes.revocations.revoke("token", token.jti)
    (frame,) = await nodes.ask(token)
    assert (frame.data["error"], len(nodes.answered)) == ("token_revoked", 1)


async def test_a_budget_counts_at_the_tool_too(nodes: Nodes) -> None:
    token = nodes.token("llm.chat@2.0", "rag.query@1.0", max_calls_total=1)
    await nodes.ask(token)
    (frame,) = await nodes.ask(token)
    assert (frame.data["error"], len(nodes.answered)) == ("token_scope_insufficient", 1)
