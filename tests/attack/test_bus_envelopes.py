"""Hostile envelopes: tampered, replayed, stale, of false names, addressed to others; none lets a call in."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from callsmith.bus.trust.authorize import Authorizer, ReplayWindow
from callsmith.core.capability.authority import Authority
from callsmith.core.errors import UsageError
from callsmith.wire.capability.envelopes import read_envelope, signed_bytes
from callsmith.wire.capability.errors import BusError
from tests.attack.bus_world import (
    ALICE,
    BODY,
    FRIEND,
    MALLORY,
    MODEL,
    NODE,
    NOW,
    OTHER_NODE,
    STRANGER,
    Clock,
    World,
    claims,
    encode,
    envelope,
    identity,
    jws,
    passed_on,
    token,
)

BAD, SIGNATURE, UNAUTHORIZED = "bad_request", "invalid_signature", "unauthorized"
FULL = {"community": "village", "session_id": "s", "seconds": 5.0, "subject": "ann", "trace_id": "t", "depth": 1, "stream": False}


class Case(NamedTuple):
    what: str
    sent: dict[str, Any]
    code: str
    signature: Any = ALICE  # an identity that signs it as it is, or the signature


def tampered() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """What was changed, the envelope as it was signed, and as it arrives."""
    changes: dict[str, Any] = {
        "capability": "rag.list_corpora",
        "version": "1.1",
        "request_id": "fresh",
        "from": MODEL.node_id,
        "to": "",
        "community": "",
        "timestamp": float(NOW + 1),
        "session_id": "another",
        "seconds": 60.0,
        "stream": True,
        "token": token(),
        "subject": FRIEND.node_id,
        "via": [FRIEND.node_id],
        "trace_id": "another",
        "depth": 0,
        "body": {"params": {"corpus": "secret"}, "input": {"query": "hall"}},
        "unknown": 1,
    }
    for name, value in changes.items():
        good = envelope(**FULL)
        yield f"{name} changed", good, good | {name: value}
    for name in ("to", "community", "session_id", "seconds", "subject", "trace_id", "depth", "timestamp", "request_id"):
        good = envelope(**FULL)
        yield f"{name} removed", good, {key: value for key, value in good.items() if key != name}
    bodies: list[Any] = [
        {**BODY, "more": 1},
        {"params": {"corpus": "village", "more": 1}, "input": {"query": "hall"}},
        {"params": {"corpus": "village"}, "input": {"query": "hall "}},
        {"params": {"corpus": "village"}, "input": {"query": "HALL"}},
        {"params": {"corpus": "village"}, "input": {"query": ["hall"]}},
        {"params": {"corpus": ["village"]}, "input": {"query": "hall"}},
        {"params": {}, "input": {"query": "hall", "corpus": "village"}},
        {"input": {"query": "hall"}},
        {},
    ]
    for body in bodies:
        good = envelope(**FULL)
        yield f"the body changed to {body}", good, good | {"body": body}
    good = envelope(body={"params": {}, "input": {"n": 1, "yes": True, "text": "1"}})
    for name, value in (("n", True), ("n", "1"), ("n", 2), ("yes", 1), ("yes", "true"), ("text", 1), ("text", "１"), ("n", None)):
        body = {"params": {}, "input": good["body"]["input"] | {name: value}}
        fresh = good | {"request_id": f"{name}{value}"}
        yield f"{name} made {value!r}", fresh, fresh | {"body": body}
    for name, value in (("trust", "trusted"), ("capabilities", ["rag.*", "llm.chat"])):
        good = envelope(**FULL, **{name: value})
        yield f"{name} removed", good, {key: content for key, content in good.items() if key != name}
        yield f"{name} widened", good, good | {name: "self" if name == "trust" else ["*"]}
    with_token = envelope(MODEL, token=passed_on())
    yield "the token removed", with_token, {key: value for key, value in with_token.items() if key != "token"}


TAMPERED = [pytest.param(signed, arrived, id=what) for what, signed, arrived in tampered()]


def signer_of(sent: dict[str, Any]) -> Any:
    return MODEL if sent["from"] == MODEL.node_id else ALICE


@pytest.mark.parametrize(("signed", "arrived"), TAMPERED)
async def test_what_was_changed_after_signing_is_refused(signed: dict[str, Any], arrived: dict[str, Any]) -> None:
    world, signature = World(), signer_of(signed).sign(signed_bytes(signed))
    assert await world.receive(arrived, signature) == SIGNATURE
    assert not world.ran
    assert await world.receive(signed, signature) == ""  # what was refused has used up nothing
    assert len(world.ran) == 1


@pytest.mark.parametrize(("signed", "arrived"), TAMPERED)
async def test_what_was_changed_in_the_bytes_is_refused(signed: dict[str, Any], arrived: dict[str, Any]) -> None:
    """Over NATS it is the payload itself that is signed."""
    world, raw = World(), json.dumps(signed).encode()
    signature = signer_of(signed).sign(raw)
    assert await world.receive(arrived, signature, json.dumps(arrived).encode()) == SIGNATURE
    assert not world.ran
    assert await world.receive(signed, signature, raw + b" ") == SIGNATURE
    assert await world.receive(signed, signature, raw) == ""


def signatures() -> Iterator[Case]:
    sent = envelope()
    good = ALICE.sign(signed_bytes(sent))
    raw = good.removeprefix("ed25519:")
    other = ALICE.sign(signed_bytes(envelope()))
    spelled = [raw, "ED25519:" + raw, "ed25519: " + raw, " " + good, good + " ", good + "\n", good + "=", good + "==", good[:-1]]
    spelled += [good + "A", good[:-2] + "AA", "ed25519:", "ed25519:ed25519:" + raw, "hmac:" + raw, "ed448:" + raw, "none", "*"]
    spelled += [
        f"ed25519:{bytes(64).hex()}",
        f"ed25519:{encode(bytes(64))}",
        f"ed25519:{encode(b'x' * 63)}",
        "ed25519:" + raw * 2,
    ]
    spelled += [good.replace("-", "+").replace("_", "/") + "+", "ed25519\uff1a" + raw, good.swapcase(), "x" * 10_000, other]
    order = 2**252 + 27742317777372353535851937790883648493
    decoded = ALICE.private_key.sign(signed_bytes(sent))
    spelled.append(f"ed25519:{encode(decoded[:32] + (int.from_bytes(decoded[32:], 'little') + order).to_bytes(32, 'little'))}")
    for number, text in enumerate(spelled):
        yield Case(f"signature {number}: {text[:12]!r}", sent, SIGNATURE, text)
    yield Case("the signature itself", sent, "", good)
    for signer in (MALLORY, STRANGER, NODE, FRIEND, MODEL):
        yield Case(f"alice's envelope signed by {signer.node_id[:12]}", envelope(), SIGNATURE, signer)
    fresh = envelope()
    yield Case("signed without the canonical form", fresh, SIGNATURE, ALICE.sign(json.dumps(fresh).encode()))
    yield Case("only the body signed", fresh, SIGNATURE, ALICE.sign(signed_bytes(fresh["body"])))
    for sender in ("", "alice", ALICE.node_id + "=", ALICE.node_id.upper(), ALICE.node_id[8:], "ed25519:", "*", "self", "local"):
        yield Case(f"from {sender[:12]!r}", envelope(sender), SIGNATURE)
    for size in (1, 31, 33, 64):
        yield Case(f"from a key of {size} bytes", envelope(f"ed25519:{encode(b'x' * size)}"), SIGNATURE)
    yield Case("from nobody", envelope(**{"from": ...}), SIGNATURE)
    swapped = envelope(NODE, to=ALICE.node_id)
    yield Case("from and to swapped", swapped, UNAUTHORIZED, ALICE)
    mirrored = envelope(ALICE)
    yield Case(
        "from and to swapped after signing",
        mirrored | {"from": NODE.node_id, "to": ALICE.node_id},
        UNAUTHORIZED,
        ALICE.sign(signed_bytes(mirrored)),
    )


def addresses() -> Iterator[Case]:
    yield Case("to this node", envelope(), "")
    yield Case("to whoever may answer", envelope(to=...), "")
    for to in (OTHER_NODE.node_id, ALICE.node_id, "*", NODE.node_id + "=", NODE.node_id.upper(), "village", " "):
        yield Case(f"to {to[:12]!r}", envelope(to=to), UNAUTHORIZED)
    yield Case("of this community", envelope(community="village"), "")
    for community in ("city", "Village", "village ", "ｖillage"):
        yield Case(f"of the community {community!r}, without a token", envelope(community=community), UNAUTHORIZED)
    yield Case("of another community, with a token", envelope(community="city", token=token()), "")
    for depth in (0, 5):
        yield Case(f"{depth} deep", envelope(depth=depth), "")
    for depth in (6, 7, 100, 10**9):
        yield Case(f"{depth} deep", envelope(depth=depth), BAD)


def times() -> Iterator[Case]:
    for offset in (0, -60, 60, -59.5):
        yield Case(f"{offset:+} s", envelope(timestamp=NOW + offset), "")
    for offset in (-60.5, 60.5, -61, 61, -86_400, 86_400, 10**9):
        yield Case(f"{offset:+} s", envelope(timestamp=float(NOW + offset)), SIGNATURE)
    for what, stamp in {"no": ..., "zero": 0, "in milliseconds": NOW * 1000}.items():
        yield Case(f"{what} timestamp", envelope(timestamp=stamp), SIGNATURE)
    for stamp in ("now", str(NOW), True, [], {}, -1, -NOW):
        yield Case(f"timestamp {stamp!r}", envelope(timestamp=stamp), BAD)
    yield Case("no id", envelope(request_id=...), SIGNATURE)
    yield Case("an empty id", envelope(request_id=""), SIGNATURE)


def claims_of_trust() -> Iterator[Case]:
    """Envelopes that say of themselves what no signature and no token bears out."""
    for name, value in {
        "nothing": {},
        "this node as the sender": {"from": NODE.node_id},
        "an anchor as the sender": {"from": FRIEND.node_id},
        "this node as the subject": {"subject": NODE.node_id},
        "an anchor as the subject": {"subject": FRIEND.node_id, "from": FRIEND.node_id},
        "members that passed it on": {"via": [FRIEND.node_id, ALICE.node_id]},
        "a field called trust": {"trust": "self", "authority": {"trust": "anchor"}},
        "a field called signature": {"signature": ALICE.sign(b"x")},
    }.items():
        yield Case(f"unsigned, with {name}", envelope(**value), UNAUTHORIZED, "")
        stranger = {key: content for key, content in value.items() if key != "from"}
        yield Case(f"signed by a stranger, with {name}", envelope(STRANGER, **stranger), UNAUTHORIZED, STRANGER)
    yield Case("a member for a stranger", envelope(subject=STRANGER.node_id), UNAUTHORIZED)
    yield Case("a member for another through a stranger", envelope(subject=MODEL.node_id, via=[STRANGER.node_id]), UNAUTHORIZED)
    yield Case("a member for itself through a stranger", envelope(subject=ALICE.node_id, via=[STRANGER.node_id]), UNAUTHORIZED)
    yield Case("this node for a stranger", envelope(NODE, subject=STRANGER.node_id), UNAUTHORIZED, NODE)
    yield Case("a token for a stranger's sake", envelope(token=token(), subject=STRANGER.node_id), UNAUTHORIZED)
    yield Case("a token, through a stranger", envelope(token=token(), via=[STRANGER.node_id]), UNAUTHORIZED)
    yield Case("a member for an anchor", envelope(subject=FRIEND.node_id), "")
    yield Case("a member for a user of its own", envelope(subject="ann"), "")
    yield Case("a member through another", envelope(subject="ann", via=[MODEL.node_id]), "")
    yield Case("this node itself", envelope(NODE), "", NODE)
    # How far the sender's own caller may go: no further than it says, and no further than the sender.
    for sender in (ALICE, NODE):
        yield Case(
            f"for a caller it does not know, by {sender.node_id[:12]}", envelope(sender, trust="unknown"), UNAUTHORIZED, sender
        )
        yield Case(f"for a caller it trusts, by {sender.node_id[:12]}", envelope(sender, trust="trusted"), "", sender)
        for patterns, code in ((["rag.*"], ""), (["llm.*"], UNAUTHORIZED), ([], UNAUTHORIZED), (["rag.quer"], UNAUTHORIZED)):
            yield Case(f"for {patterns}, by {sender.node_id[:12]}", envelope(sender, capabilities=patterns), code, sender)
    for trust in ("self", "anchor"):
        yield Case(f"a stranger's claim of {trust!r}", envelope(STRANGER, trust=trust), UNAUTHORIZED, STRANGER)
        yield Case(f"an unsigned claim of {trust!r}", envelope(trust=trust), UNAUTHORIZED, "")
        yield Case(f"a claim of {trust!r} beside a token", envelope(STRANGER, trust=trust, token=token()), SIGNATURE, STRANGER)
    yield Case("a token for a caller that is not known", envelope(token=token(), trust="unknown"), UNAUTHORIZED)
    yield Case("a token for other capabilities", envelope(token=token(), capabilities=["llm.*"]), UNAUTHORIZED)


def names() -> Iterator[Case]:
    for name in (
        "",
        "rag",
        "rag.",
        "*",
        "rag.*",
        "rag.query@1.0",
        "rag.query;x",
        "../rag.query",
        "rag.query%00",
        "x" * 200,
        None,
        1,
        True,
    ):
        yield Case(f"capability {name!r}"[:50], envelope(capability=name), BAD)
    for version in (
        "",
        "1",
        "1.0 ",
        " 1.0",
        "1.0.0",
        "-1.0",
        "+1.0",
        "1.-0",
        "01.0",
        "1.00",
        "1,0",
        "１.0",
        "1.٠",
        "1.0\n",
        "*",
        1.0,
        1,
        None,
    ):
        yield Case(f"version {version!r}", envelope(version=version), BAD)
    yield Case("another major version", envelope(version="2.0"), "schema_mismatch")
    yield Case("a later minor version", envelope(version="1.3"), "schema_mismatch")
    yield Case("a capability that nobody offers", envelope(capability="rag.secret"), "not_found")
    for name in ("request_id", "to", "community", "session_id", "subject", "trace_id", "from"):
        for value in ("a\0b", "a\nb", "a\u202eb", "x" * 129, 1, [], {}):
            yield Case(f"{name} {value!r}"[:40], envelope(**{name: value}), BAD)
    for via in (["x"] * 17, ["a\nb"], [1], {}, [["x"]]):
        yield Case(f"via {via!r}"[:40], envelope(via=via), BAD)
    for depth in (-1, 1.5, "1", True, [1]):
        yield Case(f"depth {depth!r}", envelope(depth=depth), BAD)
    for trust in ("Self", "root", "", "member ", 4, True, ["self"]):
        yield Case(f"trust {trust!r}", envelope(trust=trust), BAD)
    for patterns in ([1], {}, [["*"]], ["x" * 129], ["*"] * 300):
        yield Case(f"capabilities {patterns!r}"[:40], envelope(capabilities=patterns), BAD)
    for body in (None, [], "x", 1):
        yield Case(f"body {body!r}", envelope(body=body), BAD)


CASES = [
    pytest.param(case, id=f"{group.__name__}: {case.what}")
    for group in (signatures, addresses, times, claims_of_trust, names)
    for case in group()
]


@pytest.mark.req("R97")
@pytest.mark.parametrize("case", CASES)
async def test_an_envelope(case: Case) -> None:
    world = World()
    signature = case.signature if isinstance(case.signature, str) else case.signature.sign(signed_bytes(case.sent))
    assert await world.receive(case.sent, signature) == case.code
    assert len(world.ran) == (not case.code)


@pytest.mark.parametrize("value", [None, [], "x", 1, True, {}, {"capability": "rag.query"}])
async def test_what_is_no_envelope_is_refused(value: Any) -> None:
    world = World()
    assert await world.receive(value, "ed25519:x", b"") == BAD
    assert not world.ran


async def test_an_envelope_is_accepted_once() -> None:
    world, sent = World(), envelope()
    signature = ALICE.sign(signed_bytes(sent))
    assert [await world.receive(sent, signature) for _ in range(3)] == ["", SIGNATURE, SIGNATURE]
    world.clock.now += 60
    assert await world.receive(sent, signature) == SIGNATURE
    world.clock.now += 1_000
    assert await world.receive(sent, signature) == SIGNATURE
    assert len(world.ran) == 1


async def test_an_id_counts_once_whatever_it_is_used_for_and_for_each_sender_alone() -> None:
    world = World()

    async def send(sender: Any, **changes: Any) -> str:
        sent = envelope(sender, request_id="same", **changes)
        return await world.receive(sent, sender.sign(signed_bytes(sent)))

    assert await send(ALICE) == ""
    assert await send(ALICE, body={"params": {}, "input": {}}) == SIGNATURE
    assert await send(ALICE, timestamp=float(NOW - 30)) == SIGNATURE
    assert await send(MODEL) == ""
    assert await send(STRANGER) == UNAUTHORIZED
    assert await send(STRANGER) == SIGNATURE


def test_what_is_remembered_has_a_bound_for_each_and_is_forgotten_when_it_is_stale() -> None:
    clock = Clock()
    window = ReplayWindow(100, clock=clock)
    for number in range(100):
        window.accept(f"stranger {number}", "id", clock.now, room="")
        window.accept("alice", f"id {number}", clock.now, room="alice")
    for sender, room in (("another", ""), ("alice", "alice")):
        with pytest.raises(BusError, match="too many") as refused:
            window.accept(sender, "one more", clock.now, room=room)
        assert refused.value.code == "rate_limited"
    window.accept("model", "id", clock.now, room="model")
    assert len(window) == 201
    clock.now += 61
    window.accept("alice", "one more", clock.now, room="alice")
    window.accept("another", "id", clock.now, room="")
    assert len(window) == 3


def test_rooms_of_tokens_that_are_used_no_more_are_given_up() -> None:
    clock = Clock()
    window = ReplayWindow(clock=clock)
    window.accept("ann", "id", clock.now + 60, room="from a clock that is ahead")
    for number in range(5_000):
        clock.now += 1
        window.accept("bob", "id", clock.now, room=f"token {number}")
        if number == 100:
            with pytest.raises(BusError, match="replayed"):
                window.accept("ann", "id", NOW + 60.0, room="from a clock that is ahead")
    assert len(window) <= 200


async def test_strangers_without_end_shut_out_neither_known_nodes_nor_those_with_a_token() -> None:
    world = World(replays_most=3)

    async def send(sender: Any, **changes: Any) -> str:
        sent = envelope(sender, **changes)
        return await world.receive(sent, sender.sign(signed_bytes(sent)))

    assert [await send(identity(f"key {number}")) for number in range(5)] == [UNAUTHORIZED] * 3 + ["rate_limited"] * 2
    assert await send(ALICE) == ""
    root = token(sub=STRANGER.node_id)
    assert await send(STRANGER, token=root) == ""
    # Lending a token to ever new keys makes no room: it is that of the token.
    lent = [identity(f"lent to {number}") for number in range(3)]
    tokens = [jws(claims(iss=STRANGER.node_id, sub=item.node_id, parent=root), STRANGER) for item in lent]
    assert [await send(stranger, token=text) for stranger, text in zip(lent, tokens, strict=True)] == ["", "", "rate_limited"]


@pytest.mark.parametrize(
    "nodes", [{ALICE.node_id: "self"}, {"alice": "member"}, {"*": "member"}, {ALICE.node_id + "=": "member"}]
)
def test_a_table_that_would_trust_too_much_is_refused(nodes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Authorizer(NODE.node_id, "village", nodes)


async def test_a_caller_with_a_key_has_the_authority_of_the_key_and_no_more() -> None:
    """What a server knows of a caller by other means is passed in, and nothing in the envelope adds to it."""
    authorizer = World().authorizer
    key = Authority("ann", trust="member", token="of another call", capabilities=("rag.*",))
    sent = read_envelope(envelope(NODE, subject=FRIEND.node_id, via=[FRIEND.node_id], trace_id="t"))
    authority = authorizer.authenticate(sent, unsigned=key)
    assert (authority.subject, authority.via, authority.trust, authority.token, authority.trace_id) == (
        "ann",
        (),
        "member",
        "",
        "t",
    )
    signed = envelope(FRIEND, token=token(sub=FRIEND.node_id))
    for sent in (signed, envelope(FRIEND)):  # a signature and a token do not free it of what the key may call
        data = signed_bytes(sent)
        authority = authorizer.authenticate(read_envelope(sent), FRIEND.sign(data), data, unsigned=key)
        assert (authority.subject, authority.capabilities) == (FRIEND.node_id, ("rag.*",))


def test_calls_that_are_nested_too_deep_are_refused_before_they_reach_the_bus() -> None:
    with pytest.raises(BusError, match="nested 7 deep"):
        World().authorizer.authenticate(read_envelope(envelope(depth=7)))
