"""A node that is started anew has forgotten what came in: no call that was answered, and nothing revoked, counts again."""

import json
from pathlib import Path

import pytest

from callsmith.bus.trust.authorize import Authorizer, ReplayWindow
from callsmith.bus.trust.revocations import RevocationFile
from callsmith.bus.trust.verification import TokenVerifier
from callsmith.wire.capability.envelopes import signed_bytes
from callsmith.wire.capability.errors import BusError
from tests.attack.bus_world import (
    ALICE,
    COMMUNITY,
    MODEL,
    NODE,
    NOW,
    OPERATOR,
    World,
    claims,
    envelope,
    jws,
    passed_on,
    token,
)


def restarted(world: World) -> None:
    """The same node, with nothing in memory."""
    world.replays = ReplayWindow(1_000, clock=world.clock)
    world.authorizer = Authorizer(NODE.node_id, COMMUNITY, world.nodes, world.verifier, replays=world.replays)


@pytest.mark.parametrize("text", ["", token()])
async def test_a_call_that_was_overheard_is_not_accepted_again_after_a_restart(text: str) -> None:
    world = World()
    sent = envelope(ALICE, token=text or ...)
    signature = ALICE.sign(signed_bytes(sent))
    assert await world.receive(sent, signature) == ""
    assert await world.receive(sent, signature) == "invalid_signature"
    world.clock.now += 5
    restarted(world)
    assert await world.receive(sent, signature) == "invalid_signature"
    assert len(world.ran) == 1
    later = envelope(ALICE, token=text or ..., timestamp=world.clock.now)
    assert await world.receive(later, ALICE.sign(signed_bytes(later))) == ""  # what is signed now counts at once


@pytest.mark.parametrize("kind", ["token", "issuer"])
@pytest.mark.parametrize("id", ["root", "child"])
async def test_what_was_revoked_stays_so_after_a_restart(tmp_path: Path, kind: str, id: str) -> None:
    issuer = {"root": OPERATOR, "child": MODEL}[id].node_id
    path = tmp_path / "revocations.jsonl"
    RevocationFile(path).revoke(kind, id if kind == "token" else issuer)  # pyright: ignore[reportArgumentType]
    verifier = TokenVerifier(
        NODE.node_id, COMMUNITY, {OPERATOR.node_id: "member"}, RevocationFile(path), clock=lambda: float(NOW)
    )
    with pytest.raises(BusError) as refused:
        verifier.verify(passed_on(), MODEL.node_id)
    assert refused.value.code == ("token_revoked" if kind == "token" else "revoked")


@pytest.mark.parametrize("content", [b'{"token": "x"', b"[]\n", b'{"token": 1}\n', b'{"token": "a", "issuer": "b"}\n', b"\xff\n"])
def test_revocations_that_cannot_be_read_let_nobody_in(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "revocations.jsonl"
    path.write_bytes(b'{"token": "root"}\n' + content)
    verifier = TokenVerifier(
        NODE.node_id, COMMUNITY, {OPERATOR.node_id: "member"}, RevocationFile(path), clock=lambda: float(NOW)
    )
    with pytest.raises(BusError) as refused:
        verifier.verify(passed_on(), MODEL.node_id)
    assert refused.value.code in ("token_revoked", "internal_error")


LIVE = [(599.0, ""), (599.999, ""), (600.0, "token_expired"), (600.001, "token_expired"), (10**9, "token_expired")]


@pytest.mark.parametrize(("seconds", "code"), LIVE)
@pytest.mark.parametrize("link", ["root", "child"])
def test_a_chain_ends_in_the_second_in_which_its_first_link_does(seconds: float, code: str, link: str) -> None:
    text = passed_on(parent={"exp": NOW + (600 if link == "root" else 900)}, exp=NOW + 600)
    verifier = TokenVerifier(NODE.node_id, COMMUNITY, {OPERATOR.node_id: "member"}, clock=lambda: NOW + seconds)
    try:
        verifier.verify(text, MODEL.node_id)
        error_code = ""
    except BusError as error:
        error_code = error.code
    assert error_code == code


def test_a_name_that_stands_twice_is_refused_at_any_depth() -> None:
    good = json.dumps(claims())
    twice = [
        good.replace('"scope": {', '"scope": {"capabilities": ["admin.all@1.0"], '),
        good.replace('"jti"', '"jti": "other", "jti"'),
        good.replace('"scope"', '"scope": {"capabilities": ["admin.all@1.0"]}, "scope"'),
        good.replace('"scope": {', '"scope": {"params_constraints": {"corpus": ["a"], "corpus": ["b"]}, '),
        good.replace('"scope"', '"\\u0073cope": {}, "scope"'),  # another spelling of the same name
    ]
    verifier = TokenVerifier(NODE.node_id, COMMUNITY, {OPERATOR.node_id: "member"}, clock=lambda: float(NOW))
    for text in twice:
        with pytest.raises(BusError) as refused:
            verifier.verify(jws(text.encode()), ALICE.node_id)
        assert refused.value.code == "bad_request"


@pytest.mark.parametrize(
    "name", ["ed25519:\u0430bc", "ALICE", "\u202ealice", "a" * 129, "ed25519:" + "A" * 43 + "\u0301", "\ud800"]
)
@pytest.mark.parametrize("claim", ["iss", "sub", "aud", "jti"])
def test_names_that_are_nearly_others_are_those_of_nobody(name: str, claim: str) -> None:
    verifier = TokenVerifier(NODE.node_id, COMMUNITY, {OPERATOR.node_id: "member"}, clock=lambda: float(NOW))
    if claim == "jti" and name.isprintable() and len(name) <= 128:
        verifier.verify(token(jti=name), ALICE.node_id)  # an id may be any text
        return
    with pytest.raises(BusError):
        verifier.verify(jws(claims(**{claim: name})), ALICE.node_id)
