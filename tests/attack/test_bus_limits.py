"""Budgets and rates of tokens: not exceeded by any number of callers, threads or tokens made from them, in bounded memory."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from callsmith.bus.trust import verification
from callsmith.bus.trust.tokens import read_token
from callsmith.bus.trust.verification import UsageCounter
from callsmith.wire.capability.errors import BusError
from tests.attack.bus_world import ALICE, FRIEND, MODEL, NODE, NOW, SCOPE, STRANGER, World, claims, jws, passed_on, token

SPENT, RATE = "token_scope_insufficient", "rate_limited"


def limited(**limits: Any) -> str:
    return token(scope={"capabilities": ["rag.query@1.0"], **limits})


async def test_a_budget_is_spent_once() -> None:
    world = World()
    text = limited(max_calls_total=3)
    assert [await world.send(text) for _ in range(5)] == ["", "", "", SPENT, SPENT]
    world.clock.now += 590
    assert await world.send(text, timestamp=world.clock.now) == SPENT  # until it expires
    assert len(world.ran) == 3


async def test_a_call_that_is_refused_spends_nothing() -> None:
    world = World()
    text = token(scope={"capabilities": ["rag.query@1.0"], "max_calls_total": 1, "params_constraints": {"corpus": ["village"]}})
    assert await world.send(text, body={"params": {"corpus": "secret"}, "input": {}}) == SPENT
    assert await world.send(text, STRANGER) == "invalid_signature"
    assert await world.send(text) == ""
    assert len(world.ran) == 1


async def test_a_budget_is_not_exceeded_by_calls_at_the_same_time() -> None:
    world = World()
    codes = await asyncio.gather(*(world.send(limited(max_calls_total=7)) for _ in range(50)))
    assert sorted(codes) == [""] * 7 + [SPENT] * 43
    assert len(world.ran) == 7


@pytest.mark.parametrize(("limit", "code"), [("max_calls_total", SPENT), ("rate_limit_per_minute", RATE)])
def test_a_limit_is_not_exceeded_by_threads(limit: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, text = World(), limited(**{limit: 100})
    compare = verification._check
    monkeypatch.setattr(verification, "_check", lambda *arguments: (compare(*arguments), time.sleep(0)))  # another thread's turn

    def call(_: int) -> str:
        try:
            world.verifier.check(text, "rag.query", (1, 2), {})
        except BusError as error:
            return error.code
        return ""

    with ThreadPoolExecutor(8) as threads:
        codes = list(threads.map(call, range(2000)))
    assert (codes.count(""), codes.count(code)) == (100, 1900)


async def test_a_rate_counts_the_last_minute_wherever_it_begins() -> None:
    world = World()
    text = limited(rate_limit_per_minute=2)
    sent = []
    for second in (0, 30, 59, 60, 61, 89, 90, 91):
        world.clock.now = float(NOW + second)
        sent.append(await world.send(text, timestamp=world.clock.now))
    assert sent == ["", "", RATE, "", RATE, RATE, "", RATE]


def test_who_is_too_fast_hears_when_to_come_back() -> None:
    world, text = World(), limited(rate_limit_per_minute=1)
    world.verifier.check(text, "rag.query", (1, 2), {})
    world.clock.now += 20
    with pytest.raises(BusError) as refused:
        world.verifier.check(text, "rag.query", (1, 2), {})
    assert refused.value.seconds == 40


async def test_tokens_made_from_one_share_its_budget() -> None:
    world = World()
    small = SCOPE | {"max_calls_total": 5}
    root = token(aud=MODEL.node_id, scope=small, jti="root")
    codes = [await world.send(passed_on(parent=root, scope=small, jti=f"child {number}"), MODEL) for number in range(8)]
    assert codes == [""] * 5 + [SPENT] * 3
    assert len(world.ran) == 5


async def test_tokens_made_from_one_share_its_rate() -> None:
    world = World()
    codes = [await world.send(passed_on(jti=f"child {number}"), MODEL) for number in range(12)]
    assert codes == [""] * 10 + [RATE] * 2


async def test_the_id_of_somebody_elses_token_spends_nothing_of_it() -> None:
    world = World()
    mine = limited(max_calls_total=1)
    lent = token(sub=FRIEND.node_id, jti="lent", scope={"capabilities": ["rag.query@1.0"], "max_calls_total": 5})
    small = {"capabilities": ["rag.query@1.0"], "max_calls_total": 1}
    copied = jws(claims(iss=FRIEND.node_id, sub=FRIEND.node_id, parent=lent, scope=small), FRIEND)
    assert claims()["jti"] == read_token(copied).jti == read_token(mine).jti
    assert await world.send(copied, FRIEND) == ""
    assert await world.send(mine, ALICE) == ""
    assert await world.send(mine, ALICE) == SPENT


def test_a_spent_budget_is_remembered_through_any_flood_until_the_token_expires() -> None:
    counter, now = UsageCounter(most=5_000, most_per_root=5_000), float(NOW)
    mine = [read_token(limited(max_calls_total=1))]
    counter.count(mine, now)
    for number in range(3_000):
        counter.count(_fresh(number, exp=NOW + 1 + number // 10), now + number / 10)
    assert len(counter) < 2_100  # the expired ones are forgotten as it goes on
    with pytest.raises(BusError, match="spent"):
        counter.count(mine, now + 599)


def _fresh(number: int, root: str = "root", exp: int = NOW + 60) -> list[Any]:
    """A chain of a root token and a new one that was made from it."""
    small = {"capabilities": ["rag.query@1.0"], "max_calls_total": 1}
    parent = read_token(token(aud=MODEL.node_id, jti=root))
    child = read_token(jws(claims(iss=MODEL.node_id, aud=NODE.node_id, jti=f"{root} {number}", scope=small, exp=exp), MODEL))
    return [child, parent]


def test_a_flood_of_tokens_is_refused_and_shuts_out_nobody_else() -> None:
    counter, now = UsageCounter(most=300, most_per_root=100), float(NOW)
    for number in range(100):
        counter.count(_fresh(number), now)
    with pytest.raises(BusError) as refused:
        counter.count(_fresh(100), now)
    assert refused.value.code == "capacity_exceeded"
    counter.count(_fresh(0, root="another"), now)
    with pytest.raises(BusError, match="spent"):
        counter.count(_fresh(0), now)
    assert len(counter) == 101
    counter.count(_fresh(101), now + 61)  # all those have expired
    assert len(counter) == 1


def test_there_is_a_bound_to_all_of_them() -> None:
    counter, now = UsageCounter(most=300, most_per_root=100), float(NOW)
    codes = []
    for number in range(400):
        try:
            counter.count(_fresh(number, root=f"root {number % 10}"), now)
            codes.append("")
        except BusError as error:
            codes.append(error.code)
    assert codes == [""] * 300 + ["capacity_exceeded"] * 100
