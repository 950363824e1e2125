"""On whose authority a call over HTTP runs: the key's, narrowed by a signature and a token, and never widened."""

import time
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.http import HttpTransport
from callsmith.bus.trust.authorize import Authorizer
from callsmith.bus.trust.identity import Identity
from callsmith.bus.trust.scopes import Scope
from callsmith.bus.trust.tokens import issue
from callsmith.bus.trust.verification import TokenVerifier
from callsmith.core.capability.authority import Trust
from callsmith.core.errors import UsageError
from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.parts.bus.part import BusPart
from callsmith.server.settings import Key, Settings
from callsmith.server.tools.planner import ToolPlanner
from callsmith.wire.capability.envelopes import signed_bytes
from callsmith.wire.capability.errors import BusError
from tests.fakes import FakeModel
from tests.server.asking import http, says
from tests.server.routes.bus.calling import BODY, Scripted, envelope, post, scripted_bus
from tests.serving import served

SERVER, FRIEND, STRANGER, ISSUER = (Identity.create() for _ in range(4))
LEVELS = ("unknown", "member", "trusted", "anchor", "self")


def trusting_app(**keys: Key) -> tuple[Any, CapabilityBus, Scripted]:
    """A server that knows a node and an issuer, with a capability for each level of trust."""
    verifier = TokenVerifier(SERVER.node_id, issuers={ISSUER.node_id: "anchor"})
    authorizer = Authorizer(SERVER.node_id, nodes={FRIEND.node_id: "anchor"}, verifier=verifier)
    bus, scripted = scripted_bus(check_authority=authorizer.authorize)
    for level in LEVELS:
        bus.register(Descriptor(f"experimental.{level}", trust_required=level), scripted.query)

    async def nested(call: Any) -> Any:
        return await bus.call(call.input["target"], (1, 0), BODY)

    bus.register(Descriptor("experimental.nested", trust_required="unknown"), nested)
    model = {"m": FakeModel(says("hi"))}
    return create_app(model, parts=[BusPart(bus, authorizer)], settings=Settings(keys=keys)), bus, scripted


def key(**options: Any) -> Key:
    return Key(hash_key("k"), **options)


def signed(identity: Identity, capability: str = "rag.query", **fields: Any) -> dict[str, Any]:
    """A request whose envelope this node has signed."""
    sent = envelope(
        capability, "1.0", BODY, request_id=f"r{time.monotonic_ns()}", **{"from": identity.node_id}, timestamp=time.time()
    )
    sent |= fields
    return {"envelope": sent, "signature": identity.sign(signed_bytes(sent))}


async def code_of(app: Any, body: Any, key: str = "k") -> str:
    async with http(app) as client:
        response = await post(client, body, authorization=f"Bearer {key}")
    return "" if response.status_code == 200 else response.json()["error"]


@pytest.mark.parametrize("trust", ["unknown", "member", "trusted", "anchor"])
@pytest.mark.parametrize("by", ["headers", "nested", "own signature", "friend's signature"])
async def test_a_key_is_trusted_as_far_as_it_says_and_self_is_out_of_reach(trust: Trust, by: str) -> None:
    app, _, _ = trusting_app(k=key(trust=trust))
    for level in LEVELS:
        name = f"experimental.{level}"
        body: Any = {"envelope": envelope(name, "1.0", BODY)}
        if by == "nested":
            body = {"envelope": envelope("experimental.nested", "1.0", {"input": {"target": name}})}
        elif by != "headers":
            body = signed(SERVER if by == "own signature" else FRIEND, name)
        expected = "" if LEVELS.index(trust) >= LEVELS.index(level) else "unauthorized"
        assert await code_of(app, body) == expected, level


async def test_a_key_has_no_trust_of_the_server_itself() -> None:
    with pytest.raises(UsageError):
        key(trust="self")


@pytest.mark.parametrize(("host", "open", "trust"), [("127.0.0.1", False, "trusted"), ("0.0.0.0", True, "member")])
async def test_without_keys_callers_of_this_machine_are_trusted_and_others_are_members(host: str, open: bool, trust: str) -> None:
    bus, scripted = scripted_bus()
    app = create_app({"m": FakeModel(says("hi"))}, parts=[BusPart(bus)], settings=Settings(host=host, open=open))
    assert await code_of(app, {"envelope": envelope("rag.query", "1.0", BODY)}) == ""
    assert scripted.calls[0].authority.trust == trust


@pytest.mark.parametrize("stream", [True, False])
async def test_patterns_of_a_key_hold_also_for_calls_made_in_turn(stream: bool) -> None:
    app, _, scripted = trusting_app(k=key(trust="anchor", capabilities=("experimental.nested", "rag.*")))
    assert await code_of(app, {"envelope": envelope("rag.query", "1.0", BODY)}) == ""
    assert await code_of(app, {"envelope": envelope("llm.chat", "2.0", {"input": {}}, stream=stream)}) == "unauthorized"
    assert await code_of(app, {"envelope": envelope("experimental.member", "1.0", BODY)}) == "unauthorized"
    through = {"envelope": envelope("experimental.nested", "1.0", {"input": {"target": "experimental.member"}})}
    assert await code_of(app, through) == "unauthorized"
    assert await code_of(app, signed(FRIEND, "experimental.member")) == "unauthorized"
    assert len(scripted.calls) == 1


async def test_a_key_sees_what_it_may_call_and_an_admin_sees_the_rest() -> None:
    app, _, _ = trusting_app(k=key(capabilities=("experimental.*",)), admin=Key(hash_key("a"), scopes=("admin",)))
    async with http(app) as client:
        own = (await client.get("/bus/v1/capabilities", headers={"x-api-key": "k"})).json()["capabilities"]
        all = (await client.get("/bus/v1/capabilities", headers={"x-api-key": "a"})).json()["capabilities"]
        refused = await client.get("/bus/v1/trace", headers={"x-api-key": "k"})
        assert (refused.status_code, refused.json()["error"]) == (403, "unauthorized")
        assert (await client.get("/bus/v1/trace", headers={"x-api-key": "a"})).status_code == 200
    assert {item["name"] for item in own} == {"experimental.unknown", "experimental.member", "experimental.nested"}
    assert {item["name"] for item in all if not item["callable"]} == {
        "experimental.trusted",
        "experimental.anchor",
        "experimental.self",
    }


async def test_metrics_show_a_key_only_what_it_may_call() -> None:
    app, _, _ = trusting_app(k=key(capabilities=("rag.*",)), other=Key(hash_key("o"), capabilities=("llm.*",)))
    async with http(app) as client:
        await post(client, {"envelope": envelope("rag.query", "1.0", BODY)}, authorization="Bearer k")
        assert "rag.query" in (await client.get("/metrics", headers={"x-api-key": "k"})).text
        assert "rag.query" not in (await client.get("/metrics", headers={"x-api-key": "o"})).text


async def test_a_signature_of_a_node_that_is_not_known_narrows_what_the_key_allows() -> None:
    app, _, scripted = trusting_app(k=key(trust="anchor"))
    assert await code_of(app, signed(FRIEND)) == ""
    assert (scripted.calls[0].authority.subject, scripted.calls[0].authority.trust) == (FRIEND.node_id, "anchor")
    assert await code_of(app, signed(STRANGER)) == "unauthorized"


async def test_a_signature_that_is_wrong_or_comes_again_is_refused() -> None:
    app, _, scripted = trusting_app(k=key(trust="anchor"))
    request = signed(FRIEND)
    assert await code_of(app, request) == ""
    assert await code_of(app, request) == "invalid_signature"
    for name, value in {
        "capability": "llm.chat",
        "body": {},
        "from": STRANGER.node_id,
        "timestamp": 1.0,
        "session_id": "s",
    }.items():
        request = signed(FRIEND)
        request["envelope"][name] = value
        assert await code_of(app, request) == "invalid_signature", name
    assert await code_of(app, {**signed(FRIEND), "signature": signed(FRIEND)["signature"]}) == "invalid_signature"
    assert len(scripted.calls) == 1


async def test_a_token_narrows_what_the_key_allows() -> None:
    app, _, scripted = trusting_app(k=key(trust="member"))
    scope = Scope(("rag.query@1.0",), {"corpus": ("village",)})
    token = issue(ISSUER, subject=FRIEND.node_id, audience=SERVER.node_id, scope=scope).text
    assert await code_of(app, signed(FRIEND, token=token)) == ""
    authority = scripted.calls[0].authority
    assert (authority.subject, authority.trust, authority.token) == (FRIEND.node_id, "member", token)
    city = {"params": {"corpus": "city"}, "input": {"query": "x"}}
    assert await code_of(app, signed(FRIEND, token=token, body=city)) == "token_scope_insufficient"
    assert await code_of(app, signed(FRIEND, "experimental.member", token=token)) == "token_scope_insufficient"
    assert await code_of(app, signed(FRIEND, "experimental.trusted", token=token)) == "unauthorized"  # nor does it widen
    assert await code_of(app, signed(STRANGER, token=token)) == "invalid_signature"  # it was issued to another
    unsigned = {"envelope": envelope("rag.query", "1.0", BODY, token=token)}
    assert await code_of(app, unsigned) != ""
    through = signed(FRIEND, "experimental.nested", token=token, body={"input": {"target": "experimental.member"}})
    assert await code_of(app, through) == "token_scope_insufficient"
    assert len(scripted.calls) == 1


@pytest.mark.parametrize("lineage", [{"subject": "root"}, {"via": ["root"]}, {"trust": "self"}, {"subject": SERVER.node_id}])
async def test_what_an_unsigned_envelope_says_of_its_lineage_counts_for_nothing(lineage: Any) -> None:
    app, _, scripted = trusting_app(k=key())
    assert await code_of(app, {"envelope": envelope("rag.query", "1.0", BODY, **lineage)}) == ""
    assert (scripted.calls[0].authority.subject, scripted.calls[0].authority.via) == ("k", ())
    assert await code_of(app, {"envelope": envelope("experimental.trusted", "1.0", BODY, **lineage)}) == "unauthorized"


async def test_a_node_calls_a_server_with_its_signature_and_its_token() -> None:
    app, _, scripted = trusting_app(k=key(trust="trusted"))
    scope = Scope(("rag.query@1.0", "llm.chat@2.0"))
    token = issue(ISSUER, subject=FRIEND.node_id, audience=SERVER.node_id, scope=scope).text
    async with served(app) as url, CapabilityBus(HttpTransport(url, key="k", identity=FRIEND, token=token)) as bus:
        await bus.call("rag.query", (1, 0), BODY)
        frames = [frame.event async for frame in bus.stream("llm.chat", (2, 0), {"input": {"tokens": 2}})]
        with pytest.raises(BusError) as refused:
            await bus.call("experimental.member", (1, 0), BODY)
    assert frames == ["token", "token", "done"]
    assert {(call.authority.subject, call.authority.trust) for call in scripted.calls} == {(FRIEND.node_id, "trusted")}
    assert refused.value.code == "token_scope_insufficient"


@pytest.mark.parametrize(
    ("own", "target", "code"),
    [
        (key(trust="trusted"), "experimental.trusted", ""),
        (key(trust="member"), "experimental.member", ""),
        (key(trust="member"), "experimental.trusted", "unauthorized"),
        (key(trust="unknown"), "experimental.member", "unauthorized"),
        (key(trust="trusted", capabilities=("experimental.nested",)), "experimental.member", "unauthorized"),
        (key(trust="trusted", capabilities=("experimental.n*", "experimental.m*")), "experimental.member", ""),
    ],
)
async def test_a_node_that_passes_calls_on_lends_its_callers_nothing_of_its_own(own: Key, target: str, code: str) -> None:
    behind, _, scripted = trusting_app(k=key(trust="trusted"))
    body = {"envelope": envelope("experimental.nested", "1.0", {"input": {"target": target}})}
    async with served(behind) as url, CapabilityBus(HttpTransport(url, key="k")) as bus:
        front = create_app({"m": FakeModel(says("hi"))}, parts=[BusPart(bus)], settings=Settings(keys={"alice": own}))
        assert await code_of(front, body) == code
    assert len(scripted.calls) == (not code)


def test_a_caller_whose_key_is_gone_may_call_nothing() -> None:
    planner = ToolPlanner(Settings(keys={"k": key(trust="anchor")}))
    for gone in ("", "alice"):
        authority = planner.authority_of(gone)
        assert (authority.trust, authority.may_call("rag.query")) == ("unknown", False)
    assert planner.authority_of("k").trust == "anchor"
