"""Hostile capability tokens: none lets a call in, each is refused with its code, and the good ones among them do work.

A table of (what, token, code); "" is the code of those that must pass, so that a check which refuses everything fails too.
"""

from contextlib import suppress
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from callsmith.bus.trust.tokens import read_token
from callsmith.wire.capability.errors import BusError
from tests.attack.bus_scope_cases import LOOKALIKES, audiences, chains, presenters, scopes, times
from tests.attack.bus_token_cases import (
    AUDIENCE,
    BAD,
    EXPIRED,
    INVALID,
    SIGNATURE,
    Case,
    P,
    good,
    headers,
    keys,
    malformed,
    wrong_claims,
)
from tests.attack.bus_world import (
    ALICE,
    MALLORY,
    MODEL,
    NOW,
    OPERATOR,
    SCOPE,
    STRANGER,
    World,
    claims,
    encode,
    envelope,
    jws,
    passed_on,
    token,
)

GROUPS = (good, malformed, headers, wrong_claims, keys, times, audiences, presenters, scopes, chains)
CASES = [pytest.param(case, id=f"{group.__name__}: {case.what}") for group in GROUPS for case in group()]


@pytest.mark.req("R97")
@pytest.mark.parametrize("case", CASES)
async def test_a_token(case: Case) -> None:
    world = World()
    for _ in range(2 if case.code else 1):  # what was refused is refused again: no cache makes it good
        assert await world.send(case.token, case.sender, body={"params": case.params, "input": {}}) == case.code
    assert len(world.ran) == (0 if case.code else 1)


def test_there_are_enough_of_them() -> None:
    hostile = {(case.token, case.sender.node_id, str(case.params)) for (case,) in (param.values for param in CASES) if case.code}
    assert len(hostile) >= 300


@pytest.mark.parametrize("text", [token(), passed_on()], ids=["issued", "passed on"])
def test_no_token_survives_the_change_of_a_single_character(text: str) -> None:
    """Every character removed, doubled, swapped with the next, or replaced."""
    verifier = World().verifier
    presenter = read_token(text).sub
    assert verifier.verify(text, presenter)
    for place, letter in enumerate(text):
        changed = {text[:place] + text[place + 1 :], text[:place] + letter + text[place:]}
        changed |= {text[:place] + text[place : place + 2][::-1] + text[place + 2 :]}
        changed |= {text[:place] + other + text[place + 1 :] for other in "Ae."}
        for item in changed - {text}:
            with pytest.raises(BusError) as refused:
                verifier.verify(item, presenter)
            assert refused.value.code in (BAD, INVALID)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*claims(), *SCOPE]) | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.generated
@given(JSON, st.dictionaries(st.sampled_from([*claims(), *SCOPE, "parent"]), JSON, max_size=3))
def test_whatever_is_signed_is_a_token_or_an_error_of_the_bus(payload: Any, changes: dict[str, Any]) -> None:
    for text in (jws(payload), jws(claims() | changes), jws(claims(scope=claims()["scope"] | changes))):
        with suppress(BusError):
            verifier = World().verifier
            verifier.verify(text, ALICE.node_id)
            verifier.check(text, "rag.query", (1, 2), {"corpus": payload})


@pytest.mark.parametrize("name", LOOKALIKES)
async def test_a_name_that_looks_like_the_capability_is_none(name: str) -> None:
    world = World()
    assert await world.send(token(), capability=name) == BAD
    assert not world.ran


def _weak_keys() -> list[bytes]:
    """All encodings of points of small order, and second spellings of some."""
    eighth = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
    ys = [0, 1, P - 1, eighth, P - eighth, P, P + 1]
    return [(y | sign << 255).to_bytes(32, "little") for y in ys for sign in (0, 1)]


@pytest.mark.parametrize("raw", _weak_keys(), ids=bytes.hex)
async def test_a_weak_key_signs_nothing(raw: bytes) -> None:
    weak, signature = f"ed25519:{encode(raw)}", b"\1" + bytes(63)
    world = World(issuers={weak: "anchor"})  # even where the operator has been talked into it
    assert await world.send(jws(claims(iss=weak), sign=lambda data: signature)) == INVALID
    sent = envelope(weak)
    assert await world.receive(sent, f"ed25519:{encode(signature)}") == SIGNATURE
    assert not world.ran


def test_such_signatures_would_be_valid_were_it_not_for_the_check_of_the_key() -> None:
    Ed25519PublicKey.from_public_bytes((1).to_bytes(32, "little")).verify(b"\1" + bytes(63), b"whatever")


async def test_a_token_for_anybody_counts_where_the_operator_wants_it() -> None:
    world = World(bearer=True)
    assert await world.receive(envelope(STRANGER, token=token(sub="*"))) == ""  # nobody has signed it
    assert await world.send(token(sub="*"), MALLORY) == ""
    assert await world.receive(envelope(ALICE, token=token())) == SIGNATURE  # a token for somebody still needs a signature
    assert [authority.subject for authority in world.authorities] == [OPERATOR.node_id] * 2


async def test_an_expired_token_is_refused_also_after_it_was_good() -> None:
    world = World()
    assert await world.send(token()) == ""
    world.clock.now = NOW + 599.9
    assert await world.send(token(), timestamp=world.clock.now) == ""
    world.clock.now = NOW + 600
    assert await world.send(token(), timestamp=world.clock.now) == EXPIRED
    assert len(world.ran) == 2


@pytest.mark.parametrize(
    ("kind", "id", "code"),
    [
        ("token", "root", "token_revoked"),
        ("token", "child", "token_revoked"),
        ("issuer", OPERATOR.node_id, "revoked"),
        ("issuer", MODEL.node_id, "revoked"),
    ],
)
@pytest.mark.req("R219")
async def test_what_is_revoked_ends_at_once_whichever_link_it_is(kind: Any, id: str, code: str) -> None:
    world = World()
    assert await world.send(passed_on(), MODEL) == ""
    world.revocations.revoke(kind, id)
    assert await world.send(passed_on(), MODEL) == code
    world.revocations.revoke("token", "somebody else's")
    assert await world.send(token(jti="another", iss=OPERATOR.node_id)) == ("revoked" if id == OPERATOR.node_id else "")
    assert len(world.ran) == (1 if id == OPERATOR.node_id else 2)


async def test_a_call_that_waits_is_not_begun_with_a_token_that_was_revoked_meanwhile() -> None:
    """Between the check of the sender and the call itself there is time."""
    world = World()
    verified = world.verifier.verify(token(), ALICE.node_id)
    world.revocations.revoke("token", claims()["jti"])
    with pytest.raises(Exception, match="revoked"):
        world.verifier.check(verified.token.text, "rag.query", (1, 2), {})


@pytest.mark.req("R219")
async def test_authority_is_that_of_the_whole_chain() -> None:
    world = World(issuers={OPERATOR.node_id: "trusted"}, nodes={MODEL.node_id: "anchor"})
    assert await world.send(passed_on(), MODEL) == ""
    (authority,) = world.authorities
    assert (authority.subject, authority.via, authority.trust) == (ALICE.node_id, (MODEL.node_id,), "trusted")


@pytest.mark.req("R219")
@pytest.mark.parametrize(
    ("issuer", "nodes", "code"),
    [
        ("member", {}, ""),
        ("anchor", {ALICE: "member", MODEL: "trusted"}, ""),
        ("anchor", {ALICE: "unknown", MODEL: "anchor"}, AUDIENCE),
        ("anchor", {ALICE: "anchor", MODEL: "unknown"}, AUDIENCE),
        ("unknown", {ALICE: "anchor", MODEL: "anchor"}, AUDIENCE),
    ],
)
async def test_no_link_is_trusted_further_than_the_least(issuer: str, nodes: dict[Any, str], code: str) -> None:
    world = World(issuers={OPERATOR.node_id: issuer}, nodes={node.node_id: trust for node, trust in nodes.items()})
    assert await world.send(passed_on(), MODEL) == code
    assert len(world.ran) == (not code)
