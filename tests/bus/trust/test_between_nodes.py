"""Authority from node to node, over a real NATS server: a node calls another on behalf of a user who has a token."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.opening import open_bus
from callsmith.bus.port import CapabilityCall
from callsmith.bus.trust.authorize import Authorizer
from callsmith.bus.trust.identity import Identity
from callsmith.bus.trust.revocations import MemoryRevocations
from callsmith.bus.trust.scopes import Scope
from callsmith.bus.trust.tokens import issue, read_token
from callsmith.bus.trust.verification import TokenVerifier
from callsmith.core.capability.authority import SELF, Authority
from callsmith.wire.capability.errors import BusError
from tests.nats_server import running_nats

pytestmark = pytest.mark.nats

OPERATOR, ALICE, MODEL, CORPUS = (Identity.create() for _ in range(4))
QUERY = Descriptor("rag.query", params={"corpus": ["village", "secret"]})
SCOPE = Scope(("rag.query@1.0",), {"corpus": ("village",)}, max_calls_total=2)


@dataclass
class Nodes:
    """The bus of the model's node, and what the corpus's node has seen."""

    bus: CapabilityBus
    revocations: MemoryRevocations
    seen: list[Authority]

    async def query(self, authority: Authority, corpus: str = "village") -> str:
        """What becomes of a query that the model's node makes with this authority: "" or the code of the error."""
        try:
            await self.bus.call("rag.query", (1, 0), {"params": {"corpus": corpus}, "input": {}}, timeout=10, authority=authority)
        except BusError as error:
            return error.code
        return ""


@asynccontextmanager
async def nodes() -> AsyncIterator[Nodes]:
    """A corpus that knows the operator's tokens and, of all nodes, nobody."""
    seen: list[Authority] = []

    async def answer(call: CapabilityCall) -> dict[str, Any]:
        seen.append(call.authority)
        return {"output": {}, "meta": {}}

    revocations = MemoryRevocations()
    verifier = TokenVerifier(CORPUS.node_id, "village", {OPERATOR.node_id: "member"}, revocations)
    authorizer = Authorizer(CORPUS.node_id, "village", {}, verifier)
    with running_nats() as server:
        corpus = open_bus(server.url, identity=CORPUS, authorizer=authorizer, community="village")
        corpus.register(QUERY, answer)
        async with corpus, open_bus(server.url, identity=MODEL, community="village") as bus:
            yield Nodes(bus, revocations, seen)


def on_behalf_of_alice(audience: str = MODEL.node_id, scope: Scope = SCOPE) -> Authority:
    token = issue(OPERATOR, subject=ALICE.node_id, audience=audience, scope=scope)
    return Authority(ALICE.node_id, trust="member", token=token.text)


@pytest.mark.req("R219")
@pytest.mark.req("R97")
async def test_a_node_that_nobody_knows_calls_with_the_authority_of_a_users_token_and_with_no_other() -> None:
    async with nodes() as there:
        assert await there.query(SELF) == "unauthorized"
        alice = on_behalf_of_alice()
        assert await there.query(alice) == ""
        (authority,) = there.seen
        assert (authority.subject, authority.via, authority.trust) == (ALICE.node_id, (MODEL.node_id,), "member")
        used = read_token(authority.token)
        assert (used.iss, used.aud, used.scope.max_calls_total) == (MODEL.node_id, CORPUS.node_id, 1)
        assert used.parent is not None and used.parent.text == alice.token
        assert await there.query(alice, "secret") == "token_scope_insufficient"
        assert await there.query(on_behalf_of_alice(audience="village")) == "unauthorized"  # not given to the model's node
        assert len(there.seen) == 1


@pytest.mark.req("R219")
async def test_budget_and_revocation_of_the_users_token_hold_at_the_other_node() -> None:
    async with nodes() as there:
        alice, other = on_behalf_of_alice(), on_behalf_of_alice()
        assert [await there.query(alice) for _ in range(3)] == ["", "", "token_scope_insufficient"]
        there.revocations.revoke("token", read_token(other.token).jti)
        assert await there.query(other) == "token_revoked"
        assert len(there.seen) == 2
