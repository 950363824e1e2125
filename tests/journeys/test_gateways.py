"""Three gateways, two upstreams, one PostgreSQL: an approval asked at one gateway and answered at another runs its call once,
whichever process is killed, and whenever."""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.journeys.gateways import Server, World, asking, new_reference, running_world
from tests.waiting import until

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_world(tmp_path_factory.mktemp("world")) as started:
        yield started


@pytest.fixture
def world(running: World) -> World:
    running.start()  # what the test before has killed
    running.client = httpx2.AsyncClient(timeout=20)  # it belongs to the test's event loop
    return running


async def test_what_is_asked_at_one_gateway_is_answered_at_another(world: World):
    reference = new_reference()
    id = await world.ask(world.gateways[0], reference)
    async with httpx2.AsyncClient(base_url=world.gateways[1].url, timeout=30) as client:
        answer = (await client.post(f"/v1/approvals/{id}", json={"approve": True})).json()
    assert (answer["status"], answer["result"]["content"]) == ("done", f"paid {reference}")
    assert answer["answer"]["text"].strip() == f"paid {reference}"
    async with httpx2.AsyncClient(base_url=world.gateways[2].url, timeout=30) as client:
        assert (await client.post(f"/v1/approvals/{id}", json={"approve": False})).status_code == 409
        assert (await client.get(f"/v1/approvals/{id}")).json()["status"] == "done"
    assert world.paid()[reference] == 1


async def test_a_stream_that_waits_at_one_gateway_goes_on_when_it_is_decided_at_another(world: World):
    reference, read = new_reference(), list[str]()
    body = asking(reference, stream=True, wait_for_approval=True, tool_events=True)
    streaming = asyncio.create_task(stream(world.gateways[0], body, read))
    id = await until(lambda: question(read))
    decided = await world.approve(id, world.gateways[1])
    await asyncio.wait_for(streaming, 30)
    assert decided["result"]["content"] == f"paid {reference}"
    assert "data: [DONE]" in read
    assert f"paid {reference}" in "".join(said(read))
    assert world.paid()[reference] == 1


async def stream(gateway: Server, body: dict[str, Any], read: list[str]) -> None:
    """Have a gateway answer, and add the lines of the answer as they come."""
    async with (
        httpx2.AsyncClient(base_url=gateway.url, timeout=60) as client,
        client.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        async for line in answer.aiter_lines():
            read.append(line)


def question(lines: list[str]) -> str:
    """The id of the approval that a stream asks for, if it has come to that."""
    return next(iter(re.findall(r"confirm_[0-9a-f]+", "".join(lines))), "")


def said(lines: list[str]) -> list[str]:
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return [choice["delta"].get("content") or "" for chunk in chunks for choice in chunk.get("choices", ())]


@pytest.mark.parametrize("who", ["the one that asked", "a bystander", "an upstream", "the database"])
async def test_whoever_is_killed_between_question_and_decision_the_call_runs_once(world: World, who: str):
    reference = new_reference()
    id = await world.ask(world.gateways[0], reference)
    victim: Any = {
        "the one that asked": world.gateways[0],
        "a bystander": world.gateways[2],
        "an upstream": world.upstreams[0],
        "the database": world.database,
    }[who]
    victim.kill()
    if victim is world.database:
        async with httpx2.AsyncClient(base_url=world.gateways[1].url, timeout=30) as client:
            away = await client.post(f"/v1/approvals/{id}", json={"approve": True})
            assert (away.status_code, "retry-after" in away.headers) == (503, True)
            talk = {"model": "m", "messages": [{"role": "user", "content": "all is well"}]}
            assert (await client.post("/v1/chat/completions", json=talk)).status_code == 200
        world.database.start()
    done = await world.approve(id, world.gateways[1])
    assert (done["status"], done["result"]["content"]) == ("done", f"paid {reference}")
    assert world.paid()[reference] == 1


async def test_a_stream_s_gateway_that_is_killed_leaves_the_decision_to_another(world: World):
    reference, read = new_reference(), list[str]()
    body = asking(reference, stream=True, wait_for_approval=True, tool_events=True)
    streaming = asyncio.create_task(stream(world.gateways[0], body, read))
    id = await until(lambda: question(read))
    world.gateways[0].kill()
    with pytest.raises(httpx2.HTTPError):
        await streaming
    done = await world.approve(id, world.gateways[1])
    assert (done["result"]["content"], world.paid()[reference]) == (f"paid {reference}", 1)


async def test_killed_at_any_of_its_writes_a_gateway_leaves_nothing_that_happens_twice(world: World):
    asker, decider, other = world.gateways
    outcomes = list[str]()
    for at in range(40):
        for behind in (False, True):
            decider.kill()
            decider.start(die_at=(at, behind))
            reference = new_reference()
            id = await world.ask(asker, reference)
            decider.wait_until_it_listens()
            async with httpx2.AsyncClient(base_url=decider.url, timeout=30) as client:
                try:
                    answer = await client.post(f"/v1/approvals/{id}", json={"approve": True})
                except httpx2.HTTPError:
                    answer = None
            if answer is not None:  # it makes no more writes than that
                assert answer.json()["status"] == "done"
                assert {"ok", "interrupted"} <= set(outcomes)
                decider.kill()  # it would still die at that write
                return
            done = await world.approve(id, other)
            assert done["status"] == "done"
            outcomes.append("ok" if done["result"]["ok"] else done["result"]["code"])
            assert world.paid()[reference] == 1 if done["result"]["ok"] else world.paid()[reference] <= 1
    pytest.fail("it never came to its end")


async def test_a_gateway_that_is_killed_while_the_tool_runs_leaves_a_call_that_is_not_run_again(world: World):
    reference = new_reference("hang")
    id = await world.ask(world.gateways[0], reference)
    async with httpx2.AsyncClient(base_url=world.gateways[1].url, timeout=60) as client:
        deciding = asyncio.create_task(client.post(f"/v1/approvals/{id}", json={"approve": True}))
        await until(lambda: world.paid()[reference])
        world.gateways[1].kill()
        with pytest.raises(httpx2.HTTPError):
            await deciding
    done = await world.approve(id, world.gateways[2])
    assert (done["result"]["code"], world.paid()[reference]) == ("interrupted", 1)


async def test_a_database_that_is_killed_while_the_tool_runs_loses_nothing_of_what_it_did(world: World):
    reference = new_reference("slow")
    id = await world.ask(world.gateways[0], reference)
    async with httpx2.AsyncClient(base_url=world.gateways[1].url, timeout=60) as client:
        deciding = asyncio.create_task(client.post(f"/v1/approvals/{id}", json={"approve": True}))
        await until(lambda: world.paid()[reference])
        await asyncio.to_thread(world.database.kill)
        await asyncio.sleep(1.5)  # the tool has ended, and nobody can store it
        await asyncio.to_thread(world.database.start)
        await deciding
    done = await world.approve(id, world.gateways[2])
    assert (done["result"]["content"], world.paid()[reference]) == (f"paid {reference}", 1)


async def test_no_request_that_had_not_begun_to_stream_is_lost_in_a_storm_of_killed_upstreams(world: World):
    chance, over, outcomes = random.Random(7), asyncio.Event(), Counter[str]()

    async def talker(number: int) -> None:
        while not over.is_set():
            text, read = f"number {number} {new_reference()} " * 20, list[str]()
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]}
            await stream(chance.choice(world.gateways), body, read)
            words = "".join(said(read)).split()
            whole = words == text.split() and "data: [DONE]" in read
            outcomes["whole" if whole else "cut off" if words else f"lost: {read}"] += 1
            assert words == text.split()[: len(words)]  # what is cut off is not begun again

    talking = [asyncio.create_task(talker(number)) for number in range(12)]
    for kill in range(16):
        await asyncio.sleep(0.2 + chance.random() / 2)
        victim = world.upstreams[kill % 2]
        await asyncio.to_thread(victim.kill)
        await asyncio.sleep(chance.random())
        await asyncio.to_thread(world.start)
    over.set()
    await asyncio.gather(*talking)
    assert {kind for kind in outcomes if kind not in ("whole", "cut off")} == set()
    assert outcomes["cut off"] > 0
    assert outcomes["whole"] > 50


async def test_in_a_storm_of_kills_nothing_is_paid_twice_and_nothing_is_lost(world: World):
    chance, over, references = random.Random(7), asyncio.Event(), list[str]()

    async def payer() -> None:
        for _ in range(4):
            reference = new_reference()
            while True:
                try:
                    id = await world.ask(chance.choice(world.gateways), reference)
                    break
                except (httpx2.HTTPError, AssertionError, KeyError):
                    await asyncio.sleep(0.3)  # nothing was approved: to ask once more does no harm
            done = await world.approve(id, *chance.sample(world.gateways, 3))
            assert done["status"] == "done"
            if done["result"]["ok"]:
                references.append(reference)

    async def killer() -> None:
        while not over.is_set():
            victim: Any = chance.choice([*world.gateways, *world.upstreams, world.database])
            await asyncio.to_thread(victim.kill)
            await asyncio.sleep(chance.random() / 2)
            await asyncio.to_thread(world.start)

    killing = asyncio.create_task(killer())
    try:
        await asyncio.wait_for(asyncio.gather(*(payer() for _ in range(6))), 240)
    finally:
        over.set()
        await killing
    paid = world.paid()
    assert max(paid.values()) == 1
    assert [reference for reference in references if paid[reference] != 1] == []
    assert len(references) >= 12
