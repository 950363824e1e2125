"""Calls that wait for approval: stored, listed, decided over HTTP, resumed, and never run twice."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from callsmith.core.errors import Unavailable
from callsmith.core.events import Text
from callsmith.core.ports import Context
from callsmith.core.values import Call, Message, Result
from callsmith.server.app import create_app
from callsmith.server.approvals import approvals as module
from callsmith.server.approvals.approvals import APPROVAL_CODEC, Approval, Approvals
from callsmith.server.http.keys import new_key
from callsmith.server.settings import Key, Settings
from callsmith.server.store import Document
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed
from tests.conftest import Clock
from tests.fakes import FakeModel
from tests.server.approvals.shop import PAY, TIP, Shop, answer, ask, asked, listed, tool_results
from tests.server.asking import HI, WEATHER, calls, http, listening, says
from tests.waiting import until


@pytest.mark.req("R94")
@pytest.mark.req("R163")
async def test_a_call_waits_in_the_store_and_runs_when_somebody_says_yes():
    shop, model, store = Shop(), FakeModel(calls(PAY), says("Done.")), SqliteStore()
    async with http(create_app({"m": model}, tools=shop.tools, store=store)) as asking:
        response = await ask(asking)
        (id,) = [approval["id"] for approval in response["callsmith"]["approvals"]]
        assert f"/v1/approvals/{id}" in response["choices"][0]["message"]["content"]
        (waiting,) = await listed(asking)
        assert waiting == (await asking.get(f"/v1/approvals/{id}")).json()
        assert (waiting["id"], waiting["status"], waiting["tool"], waiting["source"]) == (id, "pending", "pay", "python")
        assert (waiting["arguments"], waiting["reason"]) == ({"euros": 5}, "pay has side effects")
        assert waiting["expires_at"] - waiting["created_at"] == 24 * 60 * 60
        assert shop.paid == []
        done = await answer(asking, id, approve=True)
        assert shop.paid == [("pay", 5)]
        assert (done["status"], done["result"]["content"]) == ("done", "paid 5")
        assert (done["answer"]["text"], done["answer"]["stop_reason"], done["answer"]["approvals"]) == ("Done.", "stop", [])
        assert done["answer"]["usage"]["prompt_tokens"] == 7
        assert tool_results(model) == ["paid 5"]
        assert await listed(asking) == []
        assert [item["status"] for item in await listed(asking, status="all")] == ["done"]
    assert [(record.data["event"], record.data.get("status")) for record in await store.audit()] == [
        ("decided", "approved"),
        ("started", None),
        ("answered", "done"),
    ]
    # what was said is stored no longer than needed
    assert await store.list("paused_run") == ()
    assert [document.data for document in await store.list("held_run")] == [""]


async def test_a_no_is_told_to_the_model_with_its_reason():
    shop, model = Shop(), FakeModel(calls(PAY), says("Fine."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        (id,) = await asked(asking)
        done = await answer(asking, id, approve=False, reason="too expensive")
    assert (done["status"], done["answer"]["text"], done["result"]["code"]) == ("denied", "Fine.", "denied")
    assert tool_results(model) == ["denied: too expensive"]
    assert shop.paid == []


@pytest.mark.parametrize("yes", [True, False])
async def test_a_call_that_was_demanded_is_not_demanded_again_after_it_was_decided(yes: bool):
    model = FakeModel(calls(PAY), says("Well."))
    async with http(create_app({"m": model}, tools=Shop().tools)) as asking:
        (id,) = await asked(asking, tool_choice="required")
        assert (await answer(asking, id, approve=yes))["answer"]["text"] == "Well."
    assert [request.choice.mode for request in model.asked] == ["required", "auto"]


async def test_whoever_approves_may_change_the_arguments():
    shop, model = Shop(), FakeModel(calls(PAY), says("Done."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        (id,) = await asked(asking)
        await answer(asking, id, approve=True, arguments={"euros": 2})
    assert shop.paid == [("pay", 2)]
    assert "changed the arguments" in tool_results(model)[0]


async def test_of_two_answers_at_once_one_counts():
    shop, model = Shop(seconds=0.2), FakeModel(calls(PAY), says("Done."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        (id,) = await asked(asking)
        words = [asking.post(f"/v1/approvals/{id}", json={"approve": yes}) for yes in (True, True, False, True)]
        answers = await asyncio.gather(*words)
        assert sorted(item.status_code for item in answers) == [200, 409, 409, 409]
        [winner] = [item.json() for item in answers if item.status_code == 200]
        for refused in (item.json() for item in answers if item.status_code == 409):
            assert (refused["error"]["code"], refused["approval"]["id"]) == ("already_answered", id)
            assert "has been answered" in refused["error"]["message"]
            assert refused["approval"]["decision"] == winner["decision"]
        assert (await asking.post(f"/v1/approvals/{id}", json={"approve": True})).status_code == 409
    assert len(shop.paid) <= 1


async def test_calls_of_one_answer_are_approved_one_by_one():
    shop, model = Shop(), FakeModel(calls(PAY, TIP), says("Done."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        first, second = await asked(asking)
        half = await answer(asking, second, approve=True)
        assert (half["answer"]["stop_reason"], [approval["id"] for approval in half["answer"]["approvals"]]) == (
            "confirmation",
            [first],
        )
        assert shop.paid == [("tip", 1)]
        whole = await answer(asking, first, approve=True)
    assert whole["answer"]["text"] == "Done."
    assert shop.paid == [("tip", 1), ("pay", 5)]
    assert sorted(tool_results(model)) == ["paid 5", "tipped 1"]


async def test_two_approvals_of_one_run_can_be_given_at_once():
    shop, model = Shop(seconds=0.2), FakeModel(calls(PAY, TIP), says("Done."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        both = await asyncio.gather(*(answer(asking, id, approve=True) for id in await asked(asking)))
    assert sorted(shop.paid) == [("pay", 5), ("tip", 1)]
    assert [item["answer"]["text"] for item in both if item["answer"] and item["answer"]["text"]] == ["Done."]
    assert len(model.asked) == 2


async def test_what_is_remembered_is_not_asked_about_again_in_the_conversation():
    shop, model = Shop(), FakeModel(calls(PAY), says("Done."), calls(PAY), says("Again."), calls(PAY), says("never"))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        (id,) = await asked(asking, session_id="s1")
        await answer(asking, id, approve=True, remember=True)
        assert "approvals" not in (await ask(asking, session_id="s1")).get("callsmith", {})
        assert len(shop.paid) == 2
        assert len(await asked(asking, session_id="s2")) == 1


async def test_a_call_that_is_made_again_with_the_same_id_is_asked_about_again():
    more = replace(PAY, arguments={"euros": 7})
    shop, model = Shop(), FakeModel(calls(PAY), calls(more), says("Twice."), calls(PAY), says("Thrice."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        (first,) = await asked(asking, session_id="s1")
        again = (await answer(asking, first, approve=True))["answer"]["approvals"]
        (second,) = [item["id"] for item in again]
        assert second != first
        assert (await answer(asking, second, approve=True))["answer"]["text"] == "Twice."
        (third,) = await asked(asking, session_id="s1")
        assert third not in (first, second)
        assert (await answer(asking, third, approve=False))["answer"]["text"] == "Thrice."
    assert shop.paid == [("pay", 5), ("pay", 7)]


async def test_a_yes_that_comes_too_late_runs_nothing(clock: Clock):
    shop, model, store = Shop(), FakeModel(calls(PAY), says("Never mind.")), SqliteStore()
    settings = Settings(approval_seconds=60)
    async with http(create_app({"m": model}, tools=shop.tools, settings=settings, store=store)) as asking:
        (id,) = await asked(asking)
        clock.advance(61)
        assert await listed(asking) == []
        assert [item["status"] for item in await listed(asking, status="expired")] == ["expired"]
        done = await answer(asking, id, approve=True)
    assert (done["status"], done["result"]["code"], done["answer"]["text"]) == ("expired", "expired", "Never mind.")
    assert tool_results(model)[0].startswith("expired: the approval of pay came too late")
    assert shop.paid == []
    assert [(record.data["event"], record.data["status"]) for record in await store.audit()] == [("expired", "expired")]


async def test_a_no_that_comes_too_late_is_a_no_all_the_same(clock: Clock):
    shop, model = Shop(), FakeModel(calls(PAY), says("Fine."))
    async with http(create_app({"m": model}, tools=shop.tools, settings=Settings(approval_seconds=60))) as asking:
        (id,) = await asked(asking)
        clock.advance(61)
        done = await answer(asking, id, approve=False, reason="too expensive")
    assert (done["status"], done["answer"]["text"], tool_results(model)) == ("denied", "Fine.", ["denied: too expensive"])
    assert shop.paid == []


async def test_a_question_stands_no_longer_than_its_toolset_says():
    shop = Shop()
    async with http(create_app({"m": FakeModel(calls(PAY))}, tools=Confirmed(shop.tools, expires=60))) as asking:
        await asked(asking)
        (waiting,) = await listed(asking)
    assert 0 < waiting["expires_at"] - waiting["created_at"] <= 60


async def test_after_an_approval_a_tool_still_runs_for_the_caller_who_asked():
    @tool(side_effects=True)
    async def who(context: Context) -> str:
        return f"for {context.subject}"

    key, digest = new_key()
    model = FakeModel(calls(Call("who", {}, "w1")), says("Done."))
    async with http(create_app({"m": model}, tools=Functions(who), settings=Settings(keys={"alice": Key(digest)}))) as asking:
        asking.headers["authorization"] = f"Bearer {key}"
        (id,) = await asked(asking)
        await answer(asking, id, approve=True)
    assert tool_results(model) == ["for alice"]


async def test_that_a_call_runs_is_on_disk_before_it_does():
    class Watched(SqliteStore):
        async def put(self, *documents: Document, durable: bool = False) -> None:
            await super().put(*documents, durable=durable)
            approvals = [
                APPROVAL_CODEC.read(document.data, id="", version=0) for document in documents if "call" in document.data
            ]
            writes.extend((approval.status, durable) for approval in approvals)

    @tool(side_effects=True)
    async def pay(euros: int) -> str:
        seen.extend(writes)
        return "paid"

    writes: list[tuple[str, bool]] = []
    seen: list[tuple[str, bool]] = []
    async with http(create_app({"m": FakeModel(calls(PAY), says("Done."))}, tools=Functions(pay), store=Watched())) as asking:
        (id,) = await asked(asking)
        await answer(asking, id, approve=True)
    assert [(status, durable) for status, durable in seen if status != "pending"] == [("approved", True), ("running", True)]


async def test_nor_is_a_call_demanded_again_that_nobody_approved_in_time():
    model = FakeModel(calls(PAY), says("Never mind."))
    async with http(create_app({"m": model}, tools=Shop().tools, settings=Settings(approval_seconds=0.05))) as asking:
        (id,) = await asked(asking, tool_choice="required")
        await asyncio.sleep(0.1)
        await answer(asking, id, approve=True)
    assert [request.choice.mode for request in model.asked] == ["required", "auto"]


async def test_approvals_of_another_key_do_not_exist():
    (alice, first), (bob, second) = new_key(), new_key()
    settings = Settings(keys={"alice": Key(first), "bob": Key(second)})
    shop = Shop()
    async with http(create_app({"m": FakeModel(calls(PAY), says("Done."))}, tools=shop.tools, settings=settings)) as asking:
        asking.headers["authorization"] = f"Bearer {alice}"
        (id,) = await asked(asking)
        asking.headers["authorization"] = f"Bearer {bob}"
        assert await listed(asking) == []
        assert (await asking.get(f"/v1/approvals/{id}")).status_code == 404
        assert (await asking.post(f"/v1/approvals/{id}", json={"approve": True})).status_code == 404
        assert shop.paid == []
        asking.headers["authorization"] = f"Bearer {alice}"
        await answer(asking, id, approve=True)
    assert len(shop.paid) == 1


@pytest.mark.parametrize(
    ("word", "field"), [({}, "approve"), ({"approve": "yes"}, "approve"), ({"approve": True, "arguments": []}, "arguments")]
)
async def test_a_word_that_makes_no_sense_decides_nothing(word: Any, field: str):
    async with http(create_app({"m": FakeModel(calls(PAY), says("Done."))}, tools=Shop().tools)) as asking:
        (id,) = await asked(asking)
        refused = await asking.post(f"/v1/approvals/{id}", json=word)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
        assert len(await listed(asking)) == 1


async def test_approvals_are_listed_page_by_page():
    model = FakeModel(calls(PAY, TIP), says("Done."))
    async with http(create_app({"m": model}, tools=Shop().tools)) as asking:
        ids = await asked(asking)
        first = (await asking.get("/v1/approvals", params={"limit": 1, "order": "asc"})).json()
        rest = (await asking.get("/v1/approvals", params={"order": "asc", "after": first["last_id"]})).json()
        assert first["has_more"] is True
        assert rest["has_more"] is False
        assert sorted(entry["id"] for entry in first["data"] + rest["data"]) == sorted(ids)
        assert (await asking.get("/v1/approvals", params={"status": "odd"})).status_code == 400


async def test_a_model_that_fails_afterwards_does_not_undo_what_was_decided():
    shop = Shop()
    async with http(create_app({"m": FakeModel(calls(PAY), [Unavailable("gone")])}, tools=shop.tools)) as asking:
        (id,) = await asked(asking)
        done = await answer(asking, id, approve=True)
    assert (done["status"], done["answer"]["error"]["message"]) == ("done", "gone")
    assert len(shop.paid) == 1


async def test_a_client_that_leaves_does_not_stop_what_it_approved():
    shop, model = Shop(seconds=0.5), FakeModel(calls(PAY), says("Done."))
    async with listening(model, tools=shop.tools) as url, httpx2.AsyncClient(base_url=url) as asking:
        (id,) = await asked(asking)
        deciding = asyncio.create_task(asking.post(f"/v1/approvals/{id}", json={"approve": True}))
        await until(lambda: shop.paid)
        deciding.cancel()
        await until(lambda: len(model.asked) == 2)
        await until(lambda: model.open == 0)
        assert (await asking.get(f"/v1/approvals/{id}")).json()["result"]["content"] == "paid 5"


async def test_the_clients_own_calls_go_back_while_one_of_the_servers_waits():
    shop, weather = Shop(), Call("weather", {"city": "Bonn"}, "w1")
    model = FakeModel(calls(PAY, weather), calls(TIP), says("Done."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        mixed: Any = {"tools": [WEATHER], "tool_mode": "mixed"}
        first = await ask(asking, **mixed)
        (id,) = [approval["id"] for approval in first["callsmith"]["approvals"]]
        message = first["choices"][0]["message"]
        assert [call["id"] for call in message["tool_calls"]] == ["w1"]
        history = [*HI, message, {"role": "tool", "tool_call_id": "w1", "content": "sun"}]
        again = await ask(asking, messages=history, **mixed)
        assert [approval["id"] for approval in again["callsmith"]["approvals"]] == [id]  # the same question, not another one
        done = await answer(asking, id, approve=True)
        assert sorted(tool_results(model)) == ["paid 5", "sun"]
        assert done["answer"]["stop_reason"] == "confirmation"
    assert shop.paid == [("pay", 5)]


async def test_text_and_calls_before_the_pause_are_what_the_model_is_told_afterwards():
    shop, model = Shop(), FakeModel([Text("I will pay."), *calls(PAY)], says("Done."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        (id,) = await asked(asking)
        await answer(asking, id, approve=True)
    assert model.asked[1].messages[1] == Message.assistant("I will pay.", calls=[PAY])


async def test_tens_of_thousands_of_old_approvals_hold_nobody_up_and_are_read_by_nobody_who_looks_for_open_ones(
    monkeypatch: pytest.MonkeyPatch,
):
    store = SqliteStore()
    approvals = Approvals(store)
    for number in range(2_000):
        call = Call("pay", {"reference": str(number)}, f"c{number}")
        done = Result(call.id, call.name, "paid") if number % 500 else None
        await approvals.write(Approval(f"a{number:04}", "run", call, "", "", float(number), 2e9, result=done))
    row = most = read = turns = seen = 0
    own: Any = vars(module)["_read_approval"]

    def count(document: Document) -> Approval:
        nonlocal row, most, read, seen
        row, seen, read = (row + 1 if turns == seen else 1), turns, read + 1
        most = max(most, row)
        return own(document)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(module, "_read_approval", count)
    others = asyncio.create_task(other())
    assert len(await approvals.all()) == read == 2_000
    assert most <= 60
    read = 0
    await approvals.interrupt_abandoned()
    app = create_app({"m": FakeModel()}, store=store)
    async with http(app) as client:
        pending = (await client.get("/v1/approvals?limit=100")).json()["data"]
    others.cancel()
    assert [item["id"] for item in pending] == ["a1500", "a1000", "a0500", "a0000"]
    assert read == 8
