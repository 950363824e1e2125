"""Offering capabilities and withdrawing them in odd moments: more often than once, while they are called, and where one fails."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.offer import offer
from callsmith.bus.port import Offer
from callsmith.capabilities.corpus import Corpora
from callsmith.capabilities.llm import LlmService
from callsmith.core.errors import UsageError
from callsmith.tools.functions import Functions
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame
from tests.bus.contract import BODY, QUERY, answer, code_of


def names(bus: CapabilityBus) -> list[str]:
    return [offer.descriptor.name for offer in bus.offers()]


class Others:
    """A transport to one other node, which answers until `leave` is set: that is called then, and the node is not there."""

    node = "here"
    leave: Any = None

    def __init__(self, most: int = 10) -> None:
        self._most = most

    def announce(self, descriptors: Sequence[Descriptor]) -> None:
        if len(descriptors) > self._most:
            raise UsageError("a node offers less")

    def offers(self, capability: str = "") -> Sequence[Offer]:
        return [Offer("there", QUERY)]

    async def request(self, *call: Any, **options: Any) -> tuple[str, Frame]:
        if self.leave is not None:
            self.leave()
            raise BusError("partition", "it is not there")
        return "there", Frame("done", {"output": {}})

    async def send(self, *call: Any, **options: Any) -> AsyncGenerator[Sequence[Frame], None]:
        yield ((await self.request())[1],)


async def test_withdrawing_twice_leaves_what_was_registered_since() -> None:
    bus = CapabilityBus()
    withdraw = bus.register(QUERY, answer)
    withdraw()
    bus.register(QUERY, answer)
    withdraw()
    assert await bus.call("rag.query", (1, 0), BODY)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_withdrawn_while_another_node_is_tried_is_not_found(stream: bool) -> None:
    others: Any = Others()
    bus = CapabilityBus(others)
    assert await bus.call("rag.query", (1, 0), BODY, session_id="s")
    others.leave = bus.register(QUERY, answer)
    if stream:
        (frame,) = [frame async for frame in bus.stream("rag.query", (1, 0), BODY, session_id="s")]
        assert (frame.event, frame.data["error"]) == ("error", "not_found")
    else:
        assert await code_of(bus.call("rag.query", (1, 0), BODY, session_id="s")) == "not_found"


async def test_what_is_more_than_a_node_may_offer_is_not_offered_and_leaves_the_rest_alone() -> None:
    others: Any = Others(most=1)
    bus = CapabilityBus(others)
    withdraw = bus.register(Descriptor("experimental.one"), answer)
    with pytest.raises(UsageError, match="less"):
        bus.register(Descriptor("experimental.two"), answer, lambda offered, requested: True)
    assert names(bus) == ["experimental.one", "rag.query"]
    withdraw()
    bus.register(Descriptor("experimental.two"), answer)


async def test_what_is_offered_together_is_offered_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    def one() -> None:
        """One."""

    def two() -> None:
        """Two."""

    bus = CapabilityBus()
    for taken in ("experimental.tools.two", "rag.list_corpora", "llm.tools.call"):
        bus.register(Descriptor(taken), answer)
    before = names(bus)
    with pytest.raises(UsageError, match="already"):
        await offer(bus, Functions(one, two))
    with pytest.raises(UsageError, match="already"):
        Corpora(tmp_path / "corpora.db").register(bus)
    with pytest.raises(UsageError, match="already"):
        LlmService(bus, {}).register()
    assert names(bus) == before
