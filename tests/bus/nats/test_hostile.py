"""Others on the same NATS server, who write whatever they like to every subject: nothing breaks, nobody is taken for another."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.nats.messages import SIGNATURE, Subjects, bytes_to_sign
from callsmith.bus.nats.neighbours import MOST_NODES
from callsmith.bus.nats.transport import NatsTransport
from callsmith.bus.opening import open_bus
from callsmith.bus.port import CapabilityCall
from callsmith.bus.trust.authorize import Authorizer
from callsmith.bus.trust.identity import Identity
from callsmith.bus.trust.scopes import Scope
from callsmith.bus.trust.tokens import issue
from callsmith.bus.trust.verification import TokenVerifier
from callsmith.core.capability.authority import Authority
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame
from tests.nats_server import NatsServer
from tests.waiting import until

pytestmark = pytest.mark.nats

ECHO = Descriptor("experimental.echo")
BIG = Descriptor("experimental.big")
COUNT = Descriptor("experimental.count", stream_schema={"type": "object"})
SUBJECTS = Subjects()


class Nodes:
    """A provider and a caller with identities, each known to the other, and somebody else who is connected to the same server."""

    def __init__(self, provider: CapabilityBus, caller: CapabilityBus, other: Any) -> None:
        self.provider, self.caller, self.other = provider, caller, other
        self.ran: list[str] = []

    async def echo(self, call: CapabilityCall) -> dict[str, Any]:
        self.ran.append(str(call.input.get("text")))
        await asyncio.sleep(float(call.input.get("seconds", 0)))
        return {"output": {"text": call.input.get("text")}, "meta": {}}

    async def count(self, call: CapabilityCall) -> AsyncIterator[Frame]:
        for number in range(50):
            yield Frame("chunk", {"number": number})
            await asyncio.sleep(0.01)
        yield Frame("done")

    async def call(self, text: str = "hello", **fields: Any) -> Any:
        """The text of the answer, or the code of the error."""
        try:
            answer = await self.caller.call(ECHO.name, (1, 0), {"input": {"text": text, **fields}}, timeout=10)
        except BusError as error:
            return error.code
        return answer["output"]["text"]

    async def publish(self, subject: str, value: Any, *, by: Identity | None = None, what: str = "", reply: str = "") -> None:
        payload = value if isinstance(value, bytes) else json.dumps(value).encode()
        headers = {SIGNATURE: by.sign(bytes_to_sign(what, payload))} if by else None
        await self.other.publish(subject, payload, reply=reply, headers=headers)

    async def settle(self) -> None:
        """Wait until what was published has been read by both."""
        await self.flush()
        await asyncio.sleep(0.2)

    async def flush(self) -> None:
        """Wait until the server has read what the other one has said."""
        for _ in range(2):  # the ping of nats-py's flush may overtake what was said before: the second comes after that
            await self.other.flush()


@pytest.fixture
async def nodes(server: NatsServer) -> AsyncIterator[Nodes]:
    import nats

    provider, caller = Identity.create(), Identity.create()
    async with AsyncExitStack() as stack:
        authorizer = Authorizer(provider.node_id, nodes={caller.node_id: "member"})
        first = await stack.enter_async_context(open_bus(server.url, identity=provider, authorizer=authorizer))
        two = await stack.enter_async_context(open_bus(server.url, identity=caller))
        opened = Nodes(first, two, await nats.connect(server.url))
        stack.push_async_callback(opened.other.close)
        first.register(ECHO, opened.echo)
        first.register(COUNT, opened.count)
        await until(lambda: two.offers(COUNT.name))
        yield opened


def listening(nodes: Nodes, subject: str, take: Callable[[Any], Any]) -> Any:
    """Have the other one listen, and wait until it does."""

    async def start() -> None:
        await nodes.other.subscribe(subject, cb=take)
        await nodes.flush()

    return start()


JUNK = [
    b"",
    b"\x00\xff\xfe",
    b"null",
    b"[]",
    b"{}",
    b'"text"',
    b"1e999",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"node": 5, "revision": "x", "offers": {}}',
    b'{"node": "anon:x", "revision": 1e300, "at": -5, "offers": [1, null, {}, {"name": "rag.query"}]}',
    b'{"node": "anon:x", "revision": 1, "at": NaN, "offers": []}',
    b'{"capability": "experimental.echo", "version": "1.0", "body": []}',
    b'{"capability": "experimental.echo", "version": 1, "body": {}, "request_id": 5, "from": ["x"], "seconds": "x"}',
    b'{"id": [], "from": {}, "n": 1, "type": "cancel"}',
    b'{"id": "x", "from": "y", "n": true, "type": 7}',
    b'{"event": "done", "data": 5, "seq": "1"}',
    b"1 2 3",
    b"nan inf",
    os.urandom(5000),
]


async def test_junk_on_every_subject_disturbs_nobody(nodes: Nodes, server: NatsServer) -> None:
    provider, caller = nodes.provider.node, nodes.caller.node
    calls: list[str] = []

    async def remember(message: Any) -> None:
        calls.append(message.reply)

    await listening(nodes, f"{SUBJECTS.node(provider)}", remember)
    assert await nodes.call() == "hello"
    await until(lambda: calls)
    subjects = [SUBJECTS.offers, SUBJECTS.who, SUBJECTS.beat(provider), SUBJECTS.beat(caller), SUBJECTS.beat("nobody")]
    subjects += [SUBJECTS.node(provider), SUBJECTS.node(caller), SUBJECTS.control(provider), SUBJECTS.control(caller), calls[0]]
    replies = [b"", b" callsmith._.offers", b" callsmith._.reply.x.1", b" \xff\xfe", f" {SUBJECTS.node(provider)}".encode()]
    heads = [
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0 503\r\n\r\n",
        b"NATS/1.0",
        b"NATS/1.0 \xff\r\n: \r\n\r\n",
        b"x",
        b"NATS/1.0\r\nA\r\n\r\n",
    ]
    lines: list[bytes] = []
    for subject in map(str.encode, subjects):
        for junk in JUNK:
            lines += [b"PUB %s%s %d\r\n%s\r\n" % (subject, reply, len(junk), junk) for reply in replies]
        for head in heads:
            for reply in replies:
                lines.append(b"HPUB %s%s %d %d\r\n%s\r\n" % (subject, reply, len(head), len(head), head))
    lines.append(b"PUB %s.\xff\xfe 2\r\n{}\r\n" % SUBJECTS.beats.removesuffix(".*").encode())
    await asyncio.to_thread(_send_raw, server, lines)
    await nodes.settle()
    for number in range(5):
        assert await nodes.call(f"still here {number}") == f"still here {number}"
    assert [frame.event async for frame in nodes.caller.stream(COUNT.name, (1, 0), {})][-1] == "done"
    assert nodes.ran == ["hello", *(f"still here {number}" for number in range(5))]


def _send_raw(server: NatsServer, lines: list[bytes]) -> None:
    """What a client would not send."""
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(b'CONNECT {"verbose":false,"headers":true,"protocol":1,"lang":"x","version":"1"}\r\n')
        for start in range(0, len(lines), 20):
            connection.sendall(b"".join(lines[start : start + 20]))
        connection.sendall(b"PING\r\n")
        connection.settimeout(20)
        received = b""
        while b"PONG" not in received and (more := connection.recv(65536)):
            received += more
        assert b"-ERR" not in received, received[-300:]


def announcement(node: str, *names: str, revision: int = 2**52, at: float = 2e9) -> dict[str, Any]:
    return {"node": node, "revision": revision, "at": at, "offers": [{"name": name, "version": "1.0"} for name in names]}


async def test_a_node_speaks_for_itself_alone(nodes: Nodes) -> None:
    thief = Identity.create()
    for by in (None, thief):
        for node in (nodes.provider.node, nodes.caller.node):
            await nodes.publish(SUBJECTS.offers, announcement(node, "experimental.stolen"), by=by, what="offers")
            gone = {"node": node, "revision": 2**52, "at": 2e9, "gone": True}
            await nodes.publish(SUBJECTS.offers, gone, by=by, what="offers")
    await nodes.publish(SUBJECTS.offers, announcement("anon:1", "experimental.stolen"))  # nodes that sign are not fooled by those
    await nodes.settle()
    assert nodes.caller.offers("experimental.stolen") == []
    assert await nodes.call() == "hello"
    await nodes.publish(SUBJECTS.offers, announcement(thief.node_id, "experimental.own"), by=thief, what="offers")
    await until(lambda: nodes.caller.offers("experimental.own"))


async def test_only_peers_are_listened_to_where_there_are_some(server: NatsServer, nodes: Nodes) -> None:
    stranger = Identity.create()
    async with open_bus(server.url, identity=Identity.create(), peers=[nodes.provider.node]) as careful:
        await nodes.publish(SUBJECTS.offers, announcement(stranger.node_id, "experimental.own"), by=stranger, what="offers")
        await until(lambda: nodes.caller.offers("experimental.own"))
        await until(lambda: careful.offers("experimental.echo"))
        assert careful.offers("experimental.own") == []


async def test_ten_thousand_nodes_that_are_none_take_no_more_room_than_they_may(server: NatsServer, nodes: Nodes) -> None:
    async with (
        open_bus(server.url, trust_unsigned="member") as open_to_all,
        open_bus(server.url, trust_unsigned="member") as provider,
    ):
        provider.register(Descriptor("experimental.real", trust_required="unknown"), nodes.echo)
        await until(lambda: open_to_all.offers("experimental.real"))
        for number in range(10_000):
            await nodes.publish(SUBJECTS.offers, announcement(f"anon:{number}", "experimental.fake", "experimental.echo"))
            await nodes.publish(SUBJECTS.beat(f"anon:x{number}"), b"1 2")
            if number % 250 == 0:  # an answer comes behind all that was said before: nobody falls behind so far as to seem gone
                with suppress(BusError):  # too late, on a machine that is busy with other things: it was waited for
                    await open_to_all.call("experimental.real", (1, 0), {"input": {"text": "hi"}})
                await nodes.call()
        last = Identity.create()
        await nodes.publish(SUBJECTS.offers, announcement(last.node_id, "experimental.last"), by=last, what="offers")
        await until(lambda: nodes.caller.offers("experimental.last"))
        await nodes.settle()
        assert len(open_to_all.offers("experimental.fake")) < MOST_NODES
        assert (await open_to_all.call("experimental.real", (1, 0), {"input": {"text": "hi"}}))["output"] == {"text": "hi"}
        assert nodes.caller.offers("experimental.fake") == []
        assert await nodes.call() == "hello"
        await until(lambda: not open_to_all.offers("experimental.fake"))  # they are not heard of any more


async def test_what_is_too_long_to_be_sent_is_refused_with_the_limit(nodes: Nodes) -> None:
    with pytest.raises(BusError, match="NATS server takes 1047552") as failed:
        await nodes.caller.call(ECHO.name, (1, 0), {"input": {"text": "x" * 1_100_000}})
    assert failed.value.code == "bad_request"
    assert await nodes.call() == "hello"


async def test_an_answer_that_is_too_long_for_one_message_comes_in_several(nodes: Nodes) -> None:
    async def big(call: CapabilityCall) -> dict[str, Any]:
        return {"output": {"text": "é" * 1_600_000}, "meta": {}}

    nodes.provider.register(BIG, big)
    await until(lambda: nodes.caller.offers(BIG.name))
    answer = await nodes.caller.call(BIG.name, (1, 0), {})
    assert answer["output"]["text"] == "é" * 1_600_000


async def test_forged_answers_are_dropped_and_the_true_one_is_taken(nodes: Nodes) -> None:
    thief, earlier = Identity.create(), list[Any]()

    async def forge(message: Any) -> None:
        for _ in range(2):  # before the call is accepted, and after that
            await forge_once(message)
            await asyncio.sleep(0.15)

    async def forge_once(message: Any) -> None:
        request_id = json.loads(message.data)["request_id"]
        forged = {"event": "done", "data": {"output": {"text": "forged"}, "meta": {}}, "seq": 1, "node": nodes.provider.node}
        for entries in (forged, {**forged, "node": thief.node_id}, {**forged, "event": "accepted", "data": {}, "seq": 0}):
            payload = json.dumps(entries).encode()
            await nodes.other.publish(message.reply, payload)
            signature = thief.sign(bytes_to_sign(f"reply {request_id} ", payload))
            await nodes.other.publish(message.reply, payload, headers={SIGNATURE: signature})
        for true in earlier:  # signed by the provider, for another call
            await nodes.other.publish(message.reply, true.data, headers=true.headers)

    async def remember(message: Any) -> None:
        earlier.append(message)

    await listening(nodes, SUBJECTS.node(nodes.provider.node), forge)
    await listening(nodes, "callsmith._.reply.>", remember)
    assert await nodes.call("one", seconds=0.3) == "one"
    await until(lambda: any(message.headers and b'"text":"one"' in message.data for message in earlier))
    assert await nodes.call("two", seconds=0.3) == "two"


async def test_a_call_that_is_sent_again_or_changed_is_not_run(nodes: Nodes) -> None:
    seen, answers = list[Any](), list[Any]()

    async def remember(message: Any) -> None:
        seen.append(message)

    async def take(message: Any) -> None:
        answers.append(json.loads(message.data))

    await listening(nodes, SUBJECTS.node(nodes.provider.node), remember)
    await listening(nodes, "callsmith._.reply.thief.*", take)
    assert await nodes.call("once") == "once"
    await until(lambda: seen)  # the listener is another connection: its copy may come after the answer
    (call,) = seen
    changed = call.data.replace(b"once", b"more").replace(b'"request_id":"', b'"request_id":"x')
    fresh = json.dumps({**json.loads(call.data), "request_id": "new"}).encode()
    for number, (payload, headers) in enumerate(
        [(call.data, call.headers), (changed, call.headers), (fresh, call.headers), (fresh, None)]
    ):
        await nodes.other.publish(call.subject, payload, reply=f"callsmith._.reply.thief.{number}", headers=headers)
        await until(lambda number=number: len(answers) > number)
    assert [answer["data"]["error"] for answer in answers] == ["invalid_signature"] * 3 + ["unauthorized"]
    assert nodes.ran == ["once"]


async def test_a_signed_call_is_for_one_node_unless_it_may_run_twice(server: NatsServer, nodes: Nodes) -> None:
    again, seen = Descriptor("experimental.again", idempotent=True), list[Any]()

    async def remember(message: Any) -> None:
        seen.append(message)

    await listening(nodes, "callsmith._.call.>", remember)
    await listening(nodes, "callsmith._.node.>", remember)
    second = Identity.create()
    authorizer = Authorizer(second.node_id, nodes={nodes.caller.node: "member"})
    async with open_bus(server.url, identity=second, authorizer=authorizer) as other:
        other.register(ECHO, nodes.echo)
        for bus in (nodes.provider, other):
            bus.register(again, nodes.echo)
        await until(lambda: len(nodes.caller.offers(ECHO.name)) == len(nodes.caller.offers(again.name)) == 2)
        for number in range(10):
            assert await nodes.call(f"once {number}") == f"once {number}"
            await nodes.caller.call(again.name, (1, 0), {"input": {"text": "more"}})
        await until(lambda: len(seen) == 20)
    envelopes = [json.loads(message.data) for message in seen]
    assert all(envelope.get("to") for envelope in envelopes if envelope["capability"] == ECHO.name)
    assert not any(envelope.get("to") for envelope in envelopes if envelope["capability"] == again.name)


async def test_nobody_else_can_stop_a_call_or_speak_in_it(nodes: Nodes) -> None:
    thief, control = Identity.create(), SUBJECTS.control(nodes.provider.node)

    async def meddle(message: Any) -> None:
        call = json.loads(message.data)
        for kind in ({"type": "cancel"}, {"type": "message", "body": {}}, {"type": "ack", "upto": 10**9}):
            for by in (None, thief):
                words = {"id": call["request_id"], "from": call["from"], "n": 10**9, **kind}
                await nodes.publish(control, words, by=by, what="control")

    await listening(nodes, SUBJECTS.node(nodes.provider.node), meddle)
    assert await nodes.call("goes on", seconds=0.5) == "goes on"
    assert [frame.event async for frame in nodes.caller.stream(COUNT.name, (1, 0), {})][-1] == "done"


async def test_beats_of_others_do_not_keep_a_dead_node_alive(nodes: Nodes, server: NatsServer) -> None:
    node = Identity.create()
    async with open_bus(server.url, identity=node) as bus:
        bus.register(Descriptor("experimental.short"), nodes.echo)
        await until(lambda: nodes.caller.offers("experimental.short"))
        transport: Any = bus._transport  # pyright: ignore[reportPrivateUsage]
        transport._beating.cancel()  # as if it were killed
        await transport._connection.close()
        for number in range(60):
            await nodes.publish(SUBJECTS.beat(node.node_id), b"99999999999999 %d" % (2e9 + number))
            if not nodes.caller.offers("experimental.short"):
                break
            await asyncio.sleep(0.1)
        assert nodes.caller.offers("experimental.short") == []


async def test_a_farewell_that_is_sent_again_removes_nobody(nodes: Nodes, server: NatsServer) -> None:
    node, messages = Identity.create(), list[Any]()

    async def remember(message: Any) -> None:
        messages.append(message)

    await listening(nodes, SUBJECTS.offers, remember)
    short = Descriptor("experimental.short")
    for _ in range(2):  # it leaves, and comes back
        async with open_bus(server.url, identity=node) as bus:
            bus.register(short, nodes.echo)
            await until(lambda: nodes.caller.offers(short.name))
            for message in [item for item in messages if b'"gone"' in item.data]:
                await nodes.other.publish(SUBJECTS.offers, message.data, headers=message.headers)
            await nodes.settle()
            assert nodes.caller.offers(short.name)
        await until(lambda: not nodes.caller.offers(short.name) and any(b'"gone"' in message.data for message in messages))


async def test_who_signs_nothing_is_trusted_as_far_as_the_operator_says(server: NatsServer, nodes: Nodes) -> None:
    async with open_bus(server.url) as stranger:
        await until(lambda: stranger.offers(ECHO.name))
        with pytest.raises(BusError) as failed:
            await stranger.call(ECHO.name, (1, 0), {"input": {"text": "x"}})
        assert failed.value.code == "unauthorized"
    assert nodes.ran == []


async def test_nothing_is_sent_where_others_say(nodes: Nodes) -> None:
    received = list[Any]()

    async def take(message: Any) -> None:
        received.append(message)

    await listening(nodes, "elsewhere.>", take)
    call = {"capability": ECHO.name, "version": "1.0", "body": {}, "request_id": "x", "from": "anon:x"}
    await nodes.publish(SUBJECTS.node(nodes.provider.node), call, reply="elsewhere.x")
    await nodes.settle()
    assert received == []


async def test_more_calls_than_a_node_takes_are_turned_away(server: NatsServer) -> None:
    started = asyncio.Event()

    async def slow(call: CapabilityCall) -> dict[str, Any]:
        started.set()
        await asyncio.sleep(1)
        return {"output": {}, "meta": {}}

    transport = NatsTransport(server.url, trust_unsigned="member", most_calls=4)
    async with CapabilityBus(transport) as provider, open_bus(server.url, trust_unsigned="member") as caller:
        provider.register(Descriptor("experimental.slow", max_concurrent=100), slow)
        await until(lambda: caller.offers("experimental.slow"))
        calling = [asyncio.create_task(caller.call("experimental.slow", (1, 0), {})) for _ in range(4)]
        await started.wait()
        await asyncio.sleep(0.1)
        with pytest.raises(BusError) as failed:
            await caller.call("experimental.slow", (1, 0), {})
        assert failed.value.code == "capacity_exceeded"
        assert len(await asyncio.gather(*calling)) == 4


async def test_a_token_goes_with_the_call_and_bounds_it(server: NatsServer) -> None:
    root, provider, caller = Identity.create(), Identity.create(), Identity.create()
    verifier = TokenVerifier(provider.node_id, issuers={root.node_id: "member"})
    authorizer = Authorizer(provider.node_id, verifier=verifier)
    seen = list[Authority]()

    async def echo(call: CapabilityCall) -> dict[str, Any]:
        seen.append(call.authority)
        return {"output": {}, "meta": {}}

    async with (
        open_bus(server.url, identity=provider, authorizer=authorizer) as first,
        open_bus(server.url, identity=caller) as two,
    ):
        first.register(ECHO, echo)
        first.register(BIG, echo)
        await until(lambda: two.offers(BIG.name))
        scope = Scope(("experimental.echo@1.0",))
        token = issue(root, subject=caller.node_id, audience=caller.node_id, scope=scope)
        authority = Authority("ann", token=token.text)
        assert await two.call(ECHO.name, (1, 0), {}, authority=authority)
        with pytest.raises(BusError) as failed:
            await two.call(BIG.name, (1, 0), {}, authority=authority)
        assert failed.value.code == "token_scope_insufficient"
        with pytest.raises(BusError) as failed:
            await two.call(ECHO.name, (1, 0), {})
        assert failed.value.code == "unauthorized"
    (ran,) = seen
    assert (ran.subject, ran.trust) == (caller.node_id, "member")
