"""Capabilities that issue tokens: never more than the caller may do, and never into the hands of a model."""

import json
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import CapabilityCall
from callsmith.bus.reach import CapabilityTools
from callsmith.bus.trust.authorize import Authorizer
from callsmith.bus.trust.issuing import token_capabilities
from callsmith.bus.trust.revocations import MemoryRevocations
from callsmith.bus.trust.scopes import Scope
from callsmith.bus.trust.tokens import attenuate, check_signatures, issue, read_token
from callsmith.bus.trust.verification import TokenVerifier
from callsmith.core.capability.authority import Authority
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result
from callsmith.tools.wrap import Confirmed
from callsmith.wire.capability.errors import BusError
from tests.attack.bus_world import ALICE, FRIEND, MALLORY, NODE, NOW, OPERATOR, STRANGER, Clock, claims, identity, jws

HERE = NODE.node_id
WIDE = Scope(("auth.token.issue@1.0", "auth.token.revoke@1.0", "auth.token.introspect@1.0", "rag.query@1.0"), {}, 100, 50)
ASK = {"subject": STRANGER.node_id, "capabilities": ["rag.query@1.0"], "max_calls_total": 2}


class Node:
    """A node that offers a query for members, a secret for anchors, and tokens."""

    def __init__(self) -> None:
        self.clock, self.revocations = Clock(), MemoryRevocations()
        issuers: dict[str, Any] = {OPERATOR.node_id: "member", HERE: "member"}
        self.verifier = TokenVerifier(HERE, "village", issuers, self.revocations, clock=self.clock)
        self.authorizer = Authorizer(HERE, "village", {}, self.verifier)
        self.bus = CapabilityBus(check_authority=self.authorizer.authorize)
        self.bus.register(Descriptor("rag.query"), self._answer)
        self.bus.register(Descriptor("rag.secret", trust_required="anchor"), self._answer)
        for descriptor, handler in token_capabilities(NODE, self.verifier, self.revocations, self.bus.offers, clock=self.clock):
            self.bus.register(descriptor, handler)

    async def _answer(self, call: CapabilityCall) -> dict[str, Any]:
        return {"output": {}, "meta": {}}

    async def call(self, name: str, caller: Authority, **input: Any) -> Any:
        return await self.bus.call(f"auth.token.{name}", (1, 0), {"input": input}, authority=caller)

    async def code(self, name: str, caller: Authority, **input: Any) -> str:
        try:
            await self.call(name, caller, **input)
        except BusError as error:
            return error.code
        return ""


MEMBER = Authority(ALICE.node_id, trust="member")
ANCHOR = Authority(FRIEND.node_id, trust="anchor")


def holder(scope: Scope = WIDE, audience: str = HERE, seconds: int = 600) -> Authority:
    """Alice with a token of the operator's."""
    token = issue(OPERATOR, subject=ALICE.node_id, audience=audience, scope=scope, seconds=seconds, now=NOW)
    return Authority(ALICE.node_id, trust="member", token=token.text)


@pytest.mark.req("R220")
@pytest.mark.parametrize("caller", [MEMBER, holder()], ids=["signed", "with a token"])
async def test_the_token_goes_to_the_client_and_the_model_sees_a_handle(caller: Authority) -> None:
    node = Node()
    answer = await node.call("issue", caller, **ASK)
    token = read_token(answer["meta"]["token"])
    check_signatures(token)
    assert token.text not in json.dumps(answer["output"]) and answer["output"]["handle"] == token.jti
    assert (token.iss, token.sub, token.aud) == (HERE, STRANGER.node_id, HERE)
    assert token.scope.max_calls_total == 2 and token.exp - NOW <= 900
    node.verifier.verify(token.text, STRANGER.node_id)
    for _ in range(2):
        node.verifier.check(token.text, "rag.query", (1, 0), {})
    with pytest.raises(BusError, match="spent"):
        node.verifier.check(token.text, "rag.query", (1, 0), {})


@pytest.mark.req("R220")
def test_issuing_and_revoking_are_side_effects_so_that_a_person_is_asked() -> None:
    capabilities = token_capabilities(NODE, TokenVerifier(HERE), MemoryRevocations(), list)
    assert {descriptor.name: descriptor.side_effects for descriptor, _ in capabilities} == {
        "auth.token.issue": True,
        "auth.token.revoke": True,
        "auth.token.introspect": False,
    }
    assert all(descriptor.trust_required == "member" for descriptor, _ in capabilities)


@pytest.mark.req("R220")
@pytest.mark.parametrize(
    ("caller", "changes", "code"),
    [
        (MEMBER, {}, ""),
        (MEMBER, {"capabilities": ["rag.secret@1.0"]}, "token_scope_insufficient"),
        (MEMBER, {"capabilities": ["rag.query@1.0", "rag.secret@1.0"]}, "token_scope_insufficient"),
        (ANCHOR, {"capabilities": ["rag.secret@1.0"]}, ""),
        (Authority("ann", trust="member", capabilities=("auth.*",)), {}, "token_scope_insufficient"),
        (Authority("ann", trust="unknown"), {}, "unauthorized"),
        (ANCHOR, {"capabilities": ["auth.token.issue@1.0"]}, "token_scope_insufficient"),
        (ANCHOR, {"capabilities": ["auth.token.revoke@1.0"]}, "token_scope_insufficient"),
        (holder(), {"capabilities": ["auth.token.issue@1.0"]}, "token_scope_insufficient"),
        (MEMBER, {"capabilities": ["rag.nothing@1.0"]}, "not_found"),
        (MEMBER, {"capabilities": ["rag.query@2.0"]}, "not_found"),
        (MEMBER, {"capabilities": ["rag.*@1.0"]}, "bad_request"),
        (MEMBER, {"capabilities": []}, "schema_mismatch"),
        (MEMBER, {"subject": "*"}, "bad_request"),
        (MEMBER, {"subject": "ann"}, "bad_request"),
        (MEMBER, {"ttl_seconds": 900}, ""),
        (MEMBER, {"ttl_seconds": 901}, "schema_mismatch"),
        (MEMBER, {"ttl_seconds": 0}, "schema_mismatch"),
        (MEMBER, {"max_calls_total": None}, "schema_mismatch"),
        (MEMBER, {"max_calls_total": 0}, "schema_mismatch"),
        (MEMBER, {"audience": "city"}, "schema_mismatch"),
        (MEMBER, {"parent": "x"}, "schema_mismatch"),
        (holder(), {"ttl_seconds": 600}, ""),
        (holder(), {"ttl_seconds": 601}, "token_scope_insufficient"),
        (holder(), {"max_calls_total": 51}, "token_scope_insufficient"),
        (holder(), {"rate_limit_per_minute": 101}, "token_scope_insufficient"),
        (holder(Scope(("auth.token.issue@1.0",))), {}, "token_scope_insufficient"),
        (holder(Scope(("rag.query@1.0",))), {}, "token_scope_insufficient"),  # it may not issue
        (holder(audience="village"), {}, "unauthorized"),
    ],
)
async def test_nobody_gets_more_by_issuing(caller: Authority, changes: dict[str, Any], code: str) -> None:
    node = Node()
    body = {name: value for name, value in (ASK | changes).items() if value is not None}
    assert await node.code("issue", caller, **body) == code


@pytest.mark.req("R220")
async def test_as_a_tool_it_waits_for_a_person_and_shows_the_model_no_token() -> None:
    node = Node()
    tools = CapabilityTools(node.bus, patterns=["auth.token.issue"])
    assert [tool.side_effects for tool in await tools.tools()] == [True]
    call, context = Call("auth_token_issue", ASK, id="c"), Context(authority=MEMBER)
    (question,) = [event async for event in Confirmed(tools).call(call, context)]
    assert isinstance(question, ConfirmationNeeded)
    (result,) = [event async for event in tools.call(call, context)]
    assert isinstance(result, Result) and result.ok
    assert "handle" in result.text and "hntoken" not in result.text


async def test_bounds_of_the_callers_token_are_those_of_the_issued_one() -> None:
    node = Node()
    constrained = Scope(WIDE.capabilities, {"corpus": ("village",)}, 10, 5)
    text = issue(OPERATOR, subject=ALICE.node_id, audience=HERE, scope=constrained, seconds=100, now=NOW).text
    call = CapabilityCall("auth.token.issue", (1, 0), {"input": ASK}, Authority(ALICE.node_id, trust="member", token=text))
    ((_, handler), *_) = token_capabilities(NODE, node.verifier, node.revocations, node.bus.offers, clock=node.clock)
    answer: Any = await handler(call)
    token = read_token(answer["meta"]["token"])
    assert token.scope == Scope(("rag.query@1.0",), {"corpus": ("village",)}, 10, 2)
    assert token.parent is not None and token.exp == token.parent.exp == NOW + 100


async def test_an_issued_token_issues_nothing() -> None:
    node = Node()
    text = (await node.call("issue", MEMBER, **ASK))["meta"]["token"]
    stranger = Authority(STRANGER.node_id, trust="member", token=text)
    assert await node.code("issue", stranger, **ASK) == "token_scope_insufficient"


async def test_a_token_is_revoked_by_its_handle_and_shown_as_such() -> None:
    node = Node()
    answer = await node.call("issue", MEMBER, **ASK)
    handle, text = answer["output"]["handle"], answer["meta"]["token"]
    assert (await node.call("introspect", MEMBER, handle=handle))["output"]["active"]
    for stranger in (Authority(MALLORY.node_id, trust="member"), Authority("", trust="member")):
        assert await node.code("revoke", stranger, handle=handle) == "not_found"
        assert await node.code("introspect", stranger, handle=handle) == "not_found"
        assert await node.code("revoke", stranger, token=text) == "unauthorized"
    anonymous = await node.call("issue", Authority("", trust="member"), **ASK)
    assert await node.code("revoke", Authority("", trust="member"), handle=anonymous["output"]["handle"]) == "not_found"
    assert await node.code("revoke", MEMBER, handle=handle) == ""
    body = (await node.call("introspect", MEMBER, handle=handle))["output"]
    assert body["active"] is False and body["reason"] == "token_revoked"
    assert await node.code("revoke", MEMBER, handle=handle) == ""  # once more does no harm


async def test_who_may_revoke_a_token_that_was_sent() -> None:
    node = Node()
    text = holder().token
    assert await node.code("revoke", Authority(MALLORY.node_id, trust="member"), token=text) == "unauthorized"
    assert await node.code("revoke", ANCHOR, token=text) == ""
    assert node.revocations.is_revoked("token", read_token(text).jti)


async def test_nobody_revokes_anothers_token_by_copying_its_id() -> None:
    """An id is chosen by whoever makes the token: Mallory makes one with the id of Alice's from a token that is rightly hers."""
    node = Node()
    victim = read_token(holder().token)
    mine = issue(OPERATOR, subject=MALLORY.node_id, audience=HERE, scope=Scope(("rag.query@1.0",)), now=NOW)
    copied = jws(claims(iss=MALLORY.node_id, sub=MALLORY.node_id, jti=victim.jti, parent=mine.text), MALLORY)
    own = jws(claims(iss=MALLORY.node_id, sub=MALLORY.node_id, jti=victim.jti), MALLORY)
    mallory = Authority(MALLORY.node_id, trust="member")
    assert await node.code("revoke", mallory, token=copied) == "unauthorized"
    assert await node.code("revoke", mallory, token=own) == "token_invalid"
    assert not node.revocations.is_revoked("token", victim.jti)


@pytest.mark.parametrize("input", [{}, {"handle": "x", "token": "y"}, {"jti": "x"}, {"handle": 1}])
async def test_which_token_is_meant_must_be_clear(input: dict[str, Any]) -> None:
    assert await Node().code("revoke", MEMBER, **input) == "schema_mismatch"


async def test_tokens_that_do_not_count_are_shown_with_the_reason() -> None:
    node = Node()
    other = attenuate(identity("alice"), read_token(holder().token), subject=STRANGER.node_id, audience=HERE, now=NOW)
    assert (await node.call("introspect", MEMBER, token=other.text))["output"]["active"]
    node.clock.now += 600
    body = (await node.call("introspect", MEMBER, token=other.text))["output"]
    assert body == {"active": False, "reason": "token_expired", "message": body["message"]}
    assert (await node.call("introspect", MEMBER, token="x"))["output"]["reason"] == "bad_request"
