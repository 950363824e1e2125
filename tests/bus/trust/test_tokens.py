"""Tokens: issued, passed on from node to node, and made for one call."""

import time
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from callsmith.bus.trust.authorize import Authorizer, per_call_token
from callsmith.bus.trust.identity import Identity
from callsmith.bus.trust.scopes import Scope, read_scope, write_scope
from callsmith.bus.trust.tokens import PREFIX, attenuate, check_signatures, issue, read_token
from callsmith.bus.trust.verification import TokenVerifier
from callsmith.core.capability.authority import Authority
from callsmith.core.errors import UsageError
from callsmith.wire.capability.envelopes import Envelope, signed_bytes, write_envelope
from callsmith.wire.capability.errors import BusError

OPERATOR, ALICE, MODEL, CORPUS, THIRD = (Identity.create() for _ in range(5))
QUERY = Scope(("llm.chat@2.0", "rag.query@1.0"), {"corpus": ("village",)}, 60, 100)


def issued(**changes: Any) -> Any:
    return issue(OPERATOR, **({"subject": ALICE.node_id, "audience": MODEL.node_id, "scope": QUERY} | changes))


def code_of(work: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(BusError) as failed:
        work(*arguments, **options)
    return failed.value.code


def test_a_token_is_read_as_it_was_issued() -> None:
    token = issued()
    assert token.text.startswith(PREFIX) and len(token.text) <= 800
    read = read_token(token.text)
    check_signatures(read)
    assert read == token
    assert (read.iss, read.sub, read.aud, read.scope) == (OPERATOR.node_id, ALICE.node_id, MODEL.node_id, QUERY)
    assert read.exp - read.iat == 3600 and len(read.jti) == 26
    assert issued().jti != issued().jti
    assert token.text not in repr(token)


def test_ids_of_later_tokens_sort_behind_those_of_earlier_ones() -> None:
    assert issued(now=1_000.0).jti < issued(now=2_000.0).jti < issued(now=1_790_000_000.0).jti


@pytest.mark.parametrize("seconds", [0, -1, 0.5, 86_401, float("nan")])
def test_how_long_a_token_is_valid_has_bounds(seconds: float) -> None:
    with pytest.raises(UsageError, match="86400"):
        issued(seconds=seconds)


@pytest.mark.parametrize(
    "scope",
    [QUERY, Scope(("rag.query@1.0",)), Scope(("rag.query@1.0",), {"n": (1, None, [True])}), Scope(("a.b@1.0",), {"x": ()})],
)
def test_a_scope_is_read_as_it_was_written(scope: Scope) -> None:
    assert write_scope(read_scope(write_scope(scope))) == write_scope(scope)


def test_a_scope_without_values_for_a_parameter_allows_none_also_when_written() -> None:
    nothing = read_scope(write_scope(Scope(("rag.query@1.0",), {"corpus": ()})))
    assert not nothing.covers("rag.query", (1, 0), {"corpus": "village"}) and not nothing.covers("rag.query", (1, 0), {})


@pytest.mark.parametrize(
    ("version", "covered"), [((1, 1), False), ((1, 2), True), ((1, 9), True), ((2, 2), False), ((0, 2), False)]
)
def test_versions_in_a_scope_follow_the_rule_of_versions(version: tuple[int, int], covered: bool) -> None:
    assert Scope(("rag.query@1.2",)).covers("rag.query", version, {}) == covered


def test_a_token_is_passed_on_by_whom_it_is_for_and_the_node_it_is_addressed_to() -> None:
    for maker in (ALICE, MODEL):
        token = attenuate(maker, issued(), subject=THIRD.node_id, audience=MODEL.node_id)
        assert token.parent is not None and token.parent.iss == OPERATOR.node_id and token.scope == QUERY
    assert code_of(attenuate, THIRD, issued(), subject=THIRD.node_id, audience=MODEL.node_id) == "token_invalid"


def test_a_token_that_is_passed_on_allows_no_more_and_not_longer() -> None:
    wider = replace(QUERY, max_calls_total=101)
    assert code_of(attenuate, MODEL, issued(), subject=MODEL.node_id, audience="x", scope=wider) == "token_invalid"
    token = attenuate(MODEL, issued(seconds=60), subject=MODEL.node_id, audience="x", seconds=80_000)
    assert token.parent is not None and token.exp == token.parent.exp


class Node:
    """A node that verifies and passes on."""

    def __init__(self, identity: Identity, community: str = "village") -> None:
        self.identity = identity
        self.verifier = TokenVerifier(identity.node_id, community, {OPERATOR.node_id: "member"})
        self.authorizer = Authorizer(identity.node_id, community, {}, self.verifier)

    def receive(self, sender: Identity, token: str, **fields: Any) -> Authority:
        envelope = Envelope(
            "rag.query", (1, 0), request_id=f"{time.perf_counter_ns()}", sender=sender.node_id, timestamp=time.time()
        )
        sent = structs.replace(envelope, to=self.identity.node_id, token=token, **fields)
        signed = signed_bytes(write_envelope(sent))
        return self.authorizer.authenticate(sent, sender.sign(signed), signed)


@pytest.mark.req("R219")
@pytest.mark.req("R98")
def test_authority_goes_from_node_to_node_and_every_link_bounds_it() -> None:
    """Alice calls the model's node, which calls the corpus of another community for her, with a token for that call alone."""
    model, corpus = Node(MODEL), Node(CORPUS, "city")
    authority = model.receive(ALICE, issued().text)
    assert (authority.subject, authority.via, authority.trust) == (ALICE.node_id, (), "member")

    params = {"corpus": "village"}
    for_one_call = per_call_token(MODEL, authority, CORPUS.node_id, "rag.query", (1, 0), params, 10)
    there = corpus.receive(MODEL, for_one_call, community="village")
    assert (there.subject, there.via, there.trust) == (ALICE.node_id, (MODEL.node_id,), "member")
    corpus.authorizer.authorize(there, "rag.query", (1, 0), params)
    assert code_of(corpus.authorizer.authorize, there, "rag.query", (1, 0), params) == "token_scope_insufficient"  # one call

    token = read_token(for_one_call)
    assert token.scope == Scope(("rag.query@1.0",), {"corpus": ("village",)}, 60, 1)
    assert 39 <= token.exp - time.time() <= 40 and token.aud == CORPUS.node_id
    assert code_of(Node(THIRD).receive, MODEL, for_one_call) == "unauthorized"  # another node's
    assert code_of(corpus.receive, ALICE, for_one_call) == "invalid_signature"
    assert code_of(corpus.receive, ALICE, issued().text) == "unauthorized"  # hers was for the model's node
    assert code_of(corpus.receive, MODEL, "", community="village") == "unauthorized"  # without a token


@pytest.mark.req("R170")
@pytest.mark.parametrize(
    ("capability", "version", "params"),
    [
        ("rag.query", (1, 0), {"corpus": "secret"}),
        ("rag.query", (1, 0), {}),
        ("rag.query", (2, 0), {"corpus": "village"}),
        ("market.post", (1, 0), {"corpus": "village"}),
    ],
)
def test_a_token_that_lacks_scope_is_said_to(capability: str, version: tuple[int, int], params: Any) -> None:
    model = Node(MODEL)
    authority = model.receive(ALICE, issued().text)
    code = "token_scope_insufficient"
    assert code_of(model.authorizer.authorize, authority, capability, version, params) == code
    assert code_of(per_call_token, MODEL, authority, CORPUS.node_id, capability, version, params, 10) == code


def test_what_the_receiver_may_call_in_turn_is_named_and_bounded() -> None:
    authority = Authority(ALICE.node_id, token=issued().text, trust="member")
    params = {"corpus": "village"}
    text = per_call_token(MODEL, authority, CORPUS.node_id, "llm.chat", (2, 0), params, 10, delegate=["rag.query@1.0"])
    assert read_token(text).scope == Scope(("llm.chat@2.0", "rag.query@1.0"), {"corpus": ("village",)}, 60, 64)
    wider, code = ["market.post@1.0"], "token_scope_insufficient"
    assert code_of(per_call_token, MODEL, authority, "x", "llm.chat", (2, 0), params, 10, delegate=wider) == code


def test_a_token_for_one_call_ends_with_the_callers() -> None:
    token = issued(seconds=20)
    text = per_call_token(MODEL, Authority(token=token.text), "x", "rag.query", (1, 0), {"corpus": "village"}, 600)
    assert read_token(text).exp == token.exp
    late = token.exp + 0.5
    arguments = (MODEL, Authority(token=token.text), "x", "rag.query", (1, 0), {"corpus": "village"}, 600)
    assert code_of(per_call_token, *arguments, now=late) == "token_expired"


def test_a_token_that_was_not_given_to_this_node_is_not_passed_on() -> None:
    for audience in ("village", CORPUS.node_id):
        authority = Authority(token=issued(audience=audience).text)
        assert code_of(per_call_token, MODEL, authority, "x", "rag.query", (1, 0), {"corpus": "village"}, 1) == "unauthorized"


def test_a_node_uses_a_token_of_its_own_for_a_community() -> None:
    own = Authority(token=issued(subject=MODEL.node_id, audience="city").text)
    text = per_call_token(MODEL, own, CORPUS.node_id, "rag.query", (1, 0), {"corpus": "village"}, 1)
    authority = Node(CORPUS, "city").receive(MODEL, text, community="village")
    assert (authority.subject, authority.via) == (MODEL.node_id, ())


def test_without_a_token_none_is_made() -> None:
    assert per_call_token(MODEL, Authority("ann"), "x", "rag.query", (1, 0), {}, 1) == ""


def test_the_nodes_own_calls_need_no_token_here() -> None:
    model = Node(MODEL)
    model.authorizer.authorize(Authority(token=issued(audience="elsewhere").text), "market.post", (1, 0), {})
    model.authorizer.authorize(Authority("ann", trust="unknown"), "market.post", (1, 0), {})
