"""Answers as they come in: whatever a provider sends, and however fast, what waits for a slow reader is bounded."""

import asyncio
import json
import time
from math import inf
from typing import Any

import pytest

from callsmith.bus.flow import LARGE, WIDEST, Deadlines
from callsmith.bus.nats.calls import OutgoingCall
from callsmith.bus.nats.messages import PART, NatsMessage
from callsmith.wire.capability.envelopes import WINDOW, Envelope
from callsmith.wire.capability.errors import BusError


def answer_of(**first: Any) -> OutgoingCall:
    """An answer whose first message has these entries."""
    called = Envelope("experimental.echo", (1, 0))
    answer = OutgoingCall(called, "id", "subject", "node", lambda node: False, inf, Deadlines())
    send(answer, "accepted", node="node", **first)
    return answer


def send(answer: OutgoingCall, event: str, size: int = 0, **entries: Any) -> None:
    data = json.dumps({"event": event, "data": {"text": "x" * size}, **entries}).encode()
    answer.take(NatsMessage("subject", "", data, {}))


async def code_of(answer: OutgoingCall) -> str:
    """How the answer ends, once all that waits is read."""
    loop = asyncio.get_running_loop()
    with pytest.raises(BusError) as failed:
        while await answer.next_burst(loop.time() + 60):
            pass
    return failed.value.code


@pytest.mark.parametrize(
    ("said", "window"),
    [(1, WINDOW), (0, WINDOW), (-(10**30), WINDOW), (100, 100), (10**30, WIDEST)],
)
def test_what_a_provider_says_of_its_window_is_kept_within_bounds(said: int, window: int) -> None:
    assert answer_of(window=said).window == window


@pytest.mark.parametrize("said", ["16", 16.5, True, None, float("nan"), float("inf"), [], {}])
def test_a_first_message_with_no_number_for_its_window_is_dropped(said: Any) -> None:
    answer = answer_of(window=said)
    assert not answer.is_accepted
    send(answer, "accepted", node="node")
    assert answer.is_accepted


async def test_a_provider_that_does_not_wait_fills_no_memory() -> None:
    answer = answer_of(window=WIDEST)
    for _ in range(10_000):
        send(answer, "token")
    assert answer.waiting <= 2 * WIDEST + 1
    assert await code_of(answer) == "internal_error"


async def test_of_large_frames_no_more_than_of_a_plain_window_may_wait() -> None:
    answer = answer_of(window=WIDEST)
    for _ in range(WIDEST):
        send(answer, "token", LARGE)
    assert answer.waiting <= 2 * WINDOW + 1
    assert await code_of(answer) == "internal_error"


async def test_large_frames_that_are_read_in_time_may_be_any_number() -> None:
    answer, loop = answer_of(window=WIDEST), asyncio.get_running_loop()
    send(answer, "token")
    for _ in range(10 * WINDOW):
        for size in (LARGE, 0, LARGE):
            send(answer, "token", size)
        while answer.waiting > WINDOW:
            assert await answer.next_burst(loop.time() + 60)
    send(answer, "done")
    bursts = [await answer.next_burst(loop.time() + 60) for _ in range(2)]
    while bursts[-1] and answer.waiting:
        bursts.append(await answer.next_burst(loop.time() + 60))
    assert bursts[-1][-1].event == "done"


async def test_a_frame_in_tens_of_thousands_of_parts_is_joined_as_they_come() -> None:
    answer, loop = answer_of(), asyncio.get_running_loop()
    whole = json.dumps({"event": "done", "data": {"text": "x" * 40_000}, "seq": 1}).encode()
    began = time.process_time()
    for number in range(1, len(whole) + 1):
        answer.take(NatsMessage("subject", "", whole[number - 1 : number], {PART: f"{number}/{len(whole)}"}))
    assert time.process_time() - began < 4  # if each were joined with all before it: ten times as much
    assert [frame.event for frame in await answer.next_burst(loop.time() + 1)] == ["done"]
