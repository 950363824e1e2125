"""This node of the bus, as the settings describe it: what it trusts and offers, and a bus that is away."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jwt")

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import CapabilityCall
from callsmith.bus.trust.identity import load_identity
from callsmith.core.errors import UsageError
from callsmith.server.parts.bus.node import bus_tools, keep_connected, open_node
from callsmith.server.parts.bus.settings import BusSettings
from callsmith.wire.capability.errors import BusError
from tests.nats_server import NatsServer, running_nats
from tests.waiting import until


async def echo(call: CapabilityCall) -> dict[str, Any]:
    return {"output": {}, "meta": {}}


def test_without_an_address_the_bus_is_of_this_process() -> None:
    node = open_node(BusSettings())
    assert (node.bus.node, node.authenticator) == ("local", None)


@pytest.mark.nats
async def test_a_node_that_takes_its_own_tokens_issues_some(tmp_path: Path) -> None:
    identity = tmp_path / "node.pem"
    own = load_identity(identity).node_id
    with running_nats() as server:
        for issuers, names in (((), []), ((own,), ["auth.token.introspect", "auth.token.issue", "auth.token.revoke"])):
            async with open_node(BusSettings(url=server.url, identity=str(identity), issuers=issuers)).bus as bus:
                assert sorted(offer.descriptor.name for offer in bus.offers()) == names


@pytest.mark.nats
async def test_a_bus_that_is_away_is_connected_when_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callsmith.server.parts.bus.node._RETRY_SECONDS", 0.1)
    with running_nats() as away:
        address = NatsServer(port=away.port)
        away.kill()
        node = open_node(BusSettings(url=address.url, identity=str(tmp_path / "node.pem")))
        async with keep_connected(node.bus):
            address.start()
            other = open_node(BusSettings(url=address.url, identity=str(tmp_path / "other.pem"), open=True))
            try:
                async with other.bus as bus:
                    bus.register(Descriptor("experimental.echo"), echo)
                    await until(lambda: node.bus.offers("experimental.echo"))
            finally:
                address.kill()


async def test_what_refuses_this_node_when_its_bus_is_back_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as another process of the same identity, which was faster."""
    monkeypatch.setattr("callsmith.server.parts.bus.node._RETRY_SECONDS", 0.01)
    outcomes = iter([BusError("partition", "it is away"), UsageError("another process of this identity is on the bus already")])

    async def start() -> None:
        raise next(outcomes)

    bus = CapabilityBus()
    monkeypatch.setattr(bus, "start", start)
    async with keep_connected(bus):
        await until(lambda: "another process of this identity" in caplog.text, 2)


async def test_tools_of_the_bus_are_built_in_ones_and_patterns() -> None:
    bus = CapabilityBus()
    assert bus_tools(bus, ()) is None
    toolset = bus_tools(bus, ("search_corpus", "experimental.home.*"))
    assert toolset is not None
    assert [tool.name for tool in await toolset.tools()] == ["search_corpus"]
    with pytest.raises(UsageError, match="search_corpus"):
        bus_tools(bus, ("search_korpus",))
