"""Flow control between the sender and the receiver of a stream."""

import asyncio

import pytest

from callsmith.bus.flow import Acknowledgements, FlowControl
from callsmith.wire.capability.errors import BusError
from callsmith.wire.capability.frames import Frame


async def test_a_sender_waits_for_room_and_goes_on_when_frames_are_acknowledged() -> None:
    flow = FlowControl(window=3)
    for _ in range(3):
        await flow.room()
    waiting = asyncio.create_task(flow.room())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    flow.acknowledge(1)
    await waiting
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(flow.room(), 0.01)


async def test_a_receiver_that_acknowledges_nothing_is_given_up() -> None:
    flow = FlowControl(window=1, seconds=0.02)
    await flow.room()
    with pytest.raises(BusError) as failed:
        await flow.room()
    assert failed.value.code == "timeout"


async def test_old_numbers_change_nothing_and_those_that_were_never_sent_are_refused() -> None:
    flow = FlowControl(window=2)
    await flow.room()
    await flow.room()
    flow.acknowledge(2)
    flow.acknowledge(0)
    flow.acknowledge(-5)
    await flow.room()
    await flow.room()
    with pytest.raises(BusError) as failed:
        flow.acknowledge(5)
    assert failed.value.code == "bad_request"


def test_a_receiver_acknowledges_every_so_many_frames() -> None:
    acknowledgements = Acknowledgements(every=8)
    due: list[int | None] = []
    for seq in range(1, 30):
        acknowledgements.check_order(Frame("token", seq=seq))
        due.append(acknowledgements.take_due())
    assert list(filter(None, due)) == [8, 16, 24]
    with pytest.raises(BusError, match="frame 31 came in place of frame 30"):
        acknowledgements.check_order(Frame("token", seq=31))
