"""Flow control between the sender and the receiver of a stream."""

import asyncio
from collections.abc import Callable

import pytest

from callsmith.bus.flow import LARGE, Acknowledgements, Deadlines, FlowControl, FrameQueue, screen_frames
from callsmith.wire.capability.envelopes import WINDOW
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


async def test_for_a_receiver_that_keeps_up_the_window_grows() -> None:
    flow, acknowledgements = FlowControl(window=4, widest=16), Acknowledgements(every=2, widest=16)
    bursts: list[int] = []
    seq = 0
    while len(bursts) < 8:
        bursts.append(await flow.room(100))
        for _ in range(bursts[-1]):
            seq += 1
            acknowledgements.check_order(Frame("token", seq=seq))
            if upto := acknowledgements.take_due():
                flow.acknowledge(upto)
    assert bursts[0] == 4 and max(bursts) <= 16 and sum(bursts[-2:]) >= 16
    flow.count_bytes(LARGE + 1)
    assert await flow.room(100) <= 16


async def test_a_receiver_that_sleeps_from_the_start_gets_a_plain_window() -> None:
    flow = FlowControl(widest=256, seconds=0.02)
    assert await flow.room(100) == WINDOW
    with pytest.raises(BusError):
        await flow.room()


def test_a_slow_receiver_acknowledges_what_it_has_after_a_while() -> None:
    acknowledgements = Acknowledgements(widest=256)
    due: list[int | None] = []
    for seq in range(1, 65):
        acknowledgements.check_order(Frame("token", seq=seq))
        due.append(acknowledgements.take_due(now=seq / 4))
    assert [seq for seq in due if seq] == [8, 16, 24, 32, 40, 48, 56, 64]


def test_a_receiver_that_has_read_all_acknowledges_it_whatever_the_window_was() -> None:
    acknowledgements = Acknowledgements(widest=256)
    for seq in range(1, 8):
        acknowledgements.check_order(Frame("token", seq=seq))
    assert acknowledgements.take_due(0.1, is_idle=True) is None
    acknowledgements.check_order(Frame("token", seq=8))
    assert acknowledgements.take_due(0.1, is_idle=True) == 8


async def test_the_reader_of_a_queue_gets_what_is_there_and_then_what_went_wrong() -> None:
    queue, loop = FrameQueue(), asyncio.get_running_loop()
    assert not await queue.next_burst(loop.time() + 0.01)
    for number in range(10):
        queue.put(Frame("token", seq=number))
    queue.fail(BusError("partition"))
    writing = asyncio.create_task(queue.wait_for_room(1))
    seqs: list[int] = []
    while len(seqs) < 10:
        seqs += [frame.seq for frame in await queue.next_burst(loop.time() + 60)]
    assert seqs == list(range(10))
    with pytest.raises(BusError, match="partition"):
        await queue.next_burst(loop.time() + 60)
    await writing


def test_frames_before_one_that_is_wrong_are_passed_on() -> None:
    good, wrong, done = Frame("token"), Frame("error", {"error": "timeout"}), Frame("done")
    screened = screen_frames([good, wrong, good], lambda frame: None)
    assert next(screened) == [good]
    with pytest.raises(BusError) as failed:
        next(screened)
    assert failed.value.code == "timeout"
    with pytest.raises(BusError):
        next(screen_frames([wrong, good], lambda frame: None))
    assert list(screen_frames([good, done, good], lambda frame: None)) == [[good, done]]
    assert list(screen_frames([good, good], lambda frame: None)) == [[good, good]]


async def test_what_comes_after_a_failure_is_dropped() -> None:
    queue, loop = FrameQueue(), asyncio.get_running_loop()
    queue.put(Frame("token", seq=1))
    queue.fail(BusError("internal_error"))
    for number in range(1000):
        queue.put(Frame("token", seq=number))
    assert queue.waiting == 1
    assert [frame.seq for frame in await queue.next_burst(loop.time() + 60)] == [1]
    with pytest.raises(BusError, match="internal_error"):
        await queue.next_burst(loop.time() + 60)


def test_one_timer_does_for_many_deadlines_and_each_is_kept() -> None:
    deadlines, expired = Deadlines(), list[str]()

    def expire(name: str) -> Callable[[], None]:
        return lambda: expired.append(name)

    async def in_a_loop() -> None:
        loop, removed = asyncio.get_running_loop(), expire("removed")
        now = loop.time()
        deadlines.add(now + 60, expire("far"))
        deadlines.add(now + 0.03, expire("later"))
        deadlines.add(now + 0.01, expire("soon"))
        deadlines.add(now + 0.02, removed)
        deadlines.remove(removed)
        deadlines.remove(removed)
        deadlines.add(now - 1, expire("past"))
        await asyncio.sleep(0.1)
        assert loop.time() - now < 60

    for _ in range(2):  # in a second event loop as in the first, of which something was left
        asyncio.run(in_a_loop())
        assert sorted(expired) == ["later", "past", "soon"]
        expired.clear()
