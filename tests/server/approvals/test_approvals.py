"""Calls that wait for a person's word: kept, listed, answered over HTTP, gone on with, and never run twice."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from callsmith.core.approval import Approved
from callsmith.core.errors import Unavailable
from callsmith.core.events import Text
from callsmith.core.ports import Context
from callsmith.core.values import Call, Message
from callsmith.server.app import create_app
from callsmith.server.approvals import approvals as kept
from callsmith.server.http.keys import new_key
from callsmith.server.settings import Key, Settings
from callsmith.server.store import Document, SqliteStore, Stale
from callsmith.tools.functions import Functions, tool
from callsmith.tools.wrap import Confirmed
from tests.conftest import Clock
from tests.fakes import FakeModel
from tests.server.asking import HI, WEATHER, calls, http, listening, says
from tests.serving import ERASING, killed
from tests.waiting import until

PAY, TIP = Call("pay", {"euros": 5}, "p1"), Call("tip", {"euros": 1}, "t1")
CHAT = "/v1/chat/completions"
ASKING: Any = {"messages": HI}


class Shop:
    """Tools with side effects, and what they did."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.paid: list[tuple[str, int]] = []
        self._seconds = seconds

    @property
    def tools(self) -> Functions:
        @tool(side_effects=True)
        async def pay(euros: int) -> str:
            self.paid.append(("pay", euros))
            await asyncio.sleep(self._seconds)
            return f"paid {euros}"

        @tool(side_effects=True)
        async def tip(euros: int) -> str:
            self.paid.append(("tip", euros))
            return f"tipped {euros}"

        return Functions(pay, tip)


async def ask(asking: httpx2.AsyncClient, **body: Any) -> Any:
    response = await asking.post(CHAT, json={"model": "m", "messages": HI, **body})
    assert response.status_code == 200, response.text
    return response.json()


async def asked(asking: httpx2.AsyncClient, **body: Any) -> list[str]:
    """Ask for something that has to be approved: the ids of the approvals."""
    return [one["id"] for one in (await ask(asking, **body))["callsmith"]["approvals"]]


async def listed(asking: httpx2.AsyncClient, **query: Any) -> list[Any]:
    return (await asking.get("/v1/approvals", params=query)).json()["data"]


async def answer(asking: httpx2.AsyncClient, id: str, **word: Any) -> Any:
    response = await asking.post(f"/v1/approvals/{id}", json=word)
    assert response.status_code == 200, response.text
    return response.json()


def told(model: FakeModel, number: int = -1) -> list[str]:
    """What the model was told by tools."""
    return [message.content for message in model.asked[number].messages if message.role == "tool"]


# The word


@pytest.mark.req("R94")
@pytest.mark.req("R163")
async def test_a_call_waits_in_the_store_and_runs_when_somebody_says_yes():
    shop, model, store = Shop(), FakeModel(calls(PAY), says("Done.")), SqliteStore()
    async with http(create_app({"m": model}, tools=shop.tools, store=store)) as asking:
        said = await ask(asking)
        (id,) = [one["id"] for one in said["callsmith"]["approvals"]]
        assert f"/v1/approvals/{id}" in said["choices"][0]["message"]["content"]
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
        assert told(model) == ["paid 5"]
        assert await listed(asking) == []
        assert [one["status"] for one in await listed(asking, status="all")] == ["done"]
    assert [(one.data["event"], one.data["status"]) for one in await store.audit()] == [
        ("decided", "approved"),
        ("answered", "done"),
    ]
    assert (
        await store.list("paused_run") == await store.list("held_run") == ()
    )  # what was said is not kept for longer than needed


async def test_a_no_is_told_to_the_model_with_its_reason():
    shop, model = Shop(), FakeModel(calls(PAY), says("Fine."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        (id,) = await asked(asking)
        done = await answer(asking, id, approve=False, reason="too expensive")
    assert (done["status"], done["answer"]["text"], done["result"]["code"]) == ("denied", "Fine.", "denied")
    assert told(model) == ["denied: too expensive"]
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
    assert "changed the arguments" in told(model)[0]


async def test_of_two_answers_at_once_one_counts():
    shop, model = Shop(seconds=0.2), FakeModel(calls(PAY), says("Done."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        (id,) = await asked(asking)
        words = [asking.post(f"/v1/approvals/{id}", json={"approve": yes}) for yes in (True, True, False, True)]
        answers = await asyncio.gather(*words)
        assert sorted(one.status_code for one in answers) == [200, 409, 409, 409]
        refused = next(one for one in answers if one.status_code == 409)
        assert "has been answered" in refused.json()["error"]["message"]
        assert (await asking.post(f"/v1/approvals/{id}", json={"approve": True})).status_code == 409
    assert len(shop.paid) <= 1


async def test_calls_of_one_answer_are_approved_one_by_one():
    shop, model = Shop(), FakeModel(calls(PAY, TIP), says("Done."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        first, second = await asked(asking)
        half = await answer(asking, second, approve=True)
        assert (half["answer"]["stop_reason"], [one["id"] for one in half["answer"]["approvals"]]) == ("confirmation", [first])
        assert shop.paid == [("tip", 1)]
        whole = await answer(asking, first, approve=True)
    assert whole["answer"]["text"] == "Done."
    assert shop.paid == [("tip", 1), ("pay", 5)]
    assert sorted(told(model)) == ["paid 5", "tipped 1"]


async def test_two_approvals_of_one_run_can_be_given_at_once():
    shop, model = Shop(seconds=0.2), FakeModel(calls(PAY, TIP), says("Done."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        both = await asyncio.gather(*(answer(asking, id, approve=True) for id in await asked(asking)))
    assert sorted(shop.paid) == [("pay", 5), ("tip", 1)]
    assert [one["answer"]["text"] for one in both if one["answer"] and one["answer"]["text"]] == ["Done."]
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
    shop, model = Shop(), FakeModel(calls(PAY), calls(PAY), says("Twice."), calls(PAY), says("Thrice."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        (first,) = await asked(asking, session_id="s1")
        again = (await answer(asking, first, approve=True))["answer"]["approvals"]
        (second,) = [one["id"] for one in again]
        assert second != first
        assert (await answer(asking, second, approve=True))["answer"]["text"] == "Twice."
        (third,) = await asked(asking, session_id="s1")
        assert third not in (first, second)
        assert (await answer(asking, third, approve=False))["answer"]["text"] == "Thrice."
    assert shop.paid == [("pay", 5), ("pay", 5)]


async def test_a_yes_that_comes_too_late_runs_nothing(clock: Clock):
    shop, model, store = Shop(), FakeModel(calls(PAY), says("Never mind.")), SqliteStore()
    settings = Settings(approval_seconds=60)
    async with http(create_app({"m": model}, tools=shop.tools, settings=settings, store=store)) as asking:
        (id,) = await asked(asking)
        clock.advance(61)
        assert await listed(asking) == []
        assert [one["status"] for one in await listed(asking, status="expired")] == ["expired"]
        done = await answer(asking, id, approve=True)
    assert (done["status"], done["result"]["code"], done["answer"]["text"]) == ("expired", "expired", "Never mind.")
    assert told(model)[0].startswith("expired: the approval of pay came too late")
    assert shop.paid == []
    assert [(one.data["event"], one.data["status"]) for one in await store.audit()] == [("expired", "expired")]


async def test_a_no_that_comes_too_late_is_a_no_all_the_same(clock: Clock):
    shop, model = Shop(), FakeModel(calls(PAY), says("Fine."))
    async with http(create_app({"m": model}, tools=shop.tools, settings=Settings(approval_seconds=60))) as asking:
        (id,) = await asked(asking)
        clock.advance(61)
        done = await answer(asking, id, approve=False, reason="too expensive")
    assert (done["status"], done["answer"]["text"], told(model)) == ("denied", "Fine.", ["denied: too expensive"])
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
    assert told(model) == ["for alice"]


async def test_that_a_call_runs_is_on_disk_before_it_does():
    class Watched(SqliteStore):
        async def put(self, *documents: Document, durable: bool = False) -> None:
            await super().put(*documents, durable=durable)
            written.extend((document.data["status"], durable) for document in documents if "status" in document.data)

    @tool(side_effects=True)
    async def pay(euros: int) -> str:
        seen.extend(written)
        return "paid"

    written: list[tuple[str, bool]] = []
    seen: list[tuple[str, bool]] = []
    async with http(create_app({"m": FakeModel(calls(PAY), says("Done."))}, tools=Functions(pay), store=Watched())) as asking:
        (id,) = await asked(asking)
        await answer(asking, id, approve=True)
    assert seen == [("approved", True), ("running", True)]  # what is pending is the standard, and not written


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
        assert sorted(one["id"] for one in first["data"] + rest["data"]) == sorted(ids)
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
        (id,) = [one["id"] for one in first["callsmith"]["approvals"]]
        message = first["choices"][0]["message"]
        assert [call["id"] for call in message["tool_calls"]] == ["w1"]
        history = [*HI, message, {"role": "tool", "tool_call_id": "w1", "content": "sun"}]
        again = await ask(asking, messages=history, **mixed)
        assert [one["id"] for one in again["callsmith"]["approvals"]] == [id]  # the same question, not another one
        done = await answer(asking, id, approve=True)
        assert sorted(told(model)) == ["paid 5", "sun"]
        assert done["answer"]["stop_reason"] == "confirmation"
    assert shop.paid == [("pay", 5)]


async def test_text_and_calls_before_the_pause_are_what_the_model_is_told_afterwards():
    shop, model = Shop(), FakeModel([Text("I will pay."), *calls(PAY)], says("Done."))
    async with http(create_app({"m": model}, tools=shop.tools)) as asking:
        (id,) = await asked(asking)
        await answer(asking, id, approve=True)
    assert model.asked[1].messages[1] == Message.assistant("I will pay.", calls=[PAY])


# Waiting


async def waiting_stream(
    asking: httpx2.AsyncClient, path: str = CHAT, body: Any = ASKING
) -> tuple[asyncio.Task[None], list[str]]:
    """A stream that waits for a word, read until it says so, and its lines so far."""
    lines: list[str] = []

    async def read() -> None:
        wanted = {"model": "m", "stream": True, "wait_for_approval": True, **body}
        async with asking.stream("POST", path, json=wanted) as response:
            assert response.status_code == 200
            async for line in response.aiter_lines():
                lines.append(line)

    reading = asyncio.create_task(read())
    await until(lambda: any("confirm_" in line for line in lines))
    return reading, lines


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, ASKING),
        ("/v1/responses", {"input": "hi"}),
        ("/v1/messages", {"messages": HI, "max_tokens": 9}),
        ("/api/chat", {"messages": HI}),
    ],
)
async def test_a_stream_that_waits_goes_on_when_the_word_comes(path: str, body: Any):
    shop, model = Shop(), FakeModel(calls(PAY), says("All done."))
    settings = Settings(keep_alive=0.05)
    async with listening(model, tools=shop.tools, settings=settings) as url, httpx2.AsyncClient(base_url=url) as asking:
        reading, lines = await waiting_stream(asking, path, body)
        seen = len(lines)
        await until(lambda: len(lines) > seen + 3)  # it is kept alive
        assert not reading.done()
        (waiting,) = await listed(asking)
        done = await answer(asking, waiting["id"], approve=True)
        assert done["answer"] is None  # it is in the stream
        await asyncio.wait_for(reading, 60)
        assert "All done." in "\n".join(lines[seen:])
        assert shop.paid == [("pay", 5)]
        assert (await asking.get(f"/v1/approvals/{waiting['id']}")).json()["status"] == "done"


async def test_the_word_may_be_given_to_another_process(tmp_path: Path):
    shop, model = Shop(), FakeModel(calls(PAY), says("All done."))
    store = str(tmp_path / "store.db")
    async with (
        listening(model, tools=shop.tools, store=SqliteStore(store)) as url,
        httpx2.AsyncClient(base_url=url) as asking,
        http(create_app({"m": FakeModel(says("never"))}, tools=Shop().tools, store=SqliteStore(store))) as elsewhere,
    ):
        reading, lines = await waiting_stream(asking)
        (waiting,) = await listed(elsewhere)
        assert (await answer(elsewhere, waiting["id"], approve=True))["answer"] is None
        await asyncio.wait_for(reading, 60)
    assert "All done." in "\n".join(lines)
    assert shop.paid == [("pay", 5)]


async def test_a_stream_waits_no_longer_than_an_approval_stands():
    shop, model = Shop(), FakeModel(calls(PAY), says("Never mind."))
    async with http(create_app({"m": model}, tools=shop.tools, settings=Settings(approval_seconds=0.3))) as asking:
        said = await ask(asking, wait_for_approval=True)
    assert said["choices"][0]["message"]["content"].endswith("\n\nNever mind.")
    assert told(model)[0].startswith("expired")
    assert shop.paid == []


async def test_where_nobody_waits_any_more_the_word_itself_goes_on_with_the_run():
    shop, model = Shop(), FakeModel(calls(PAY), says("Done."))
    async with listening(model, tools=shop.tools) as url, httpx2.AsyncClient(base_url=url) as asking:
        reading, _ = await waiting_stream(asking)
        reading.cancel()
        await asyncio.wait({reading})
        (waiting,) = await listed(asking)
        done = await answer(asking, waiting["id"], approve=True)
    assert done["answer"]["text"] == "Done."
    assert len(shop.paid) == 1


async def test_a_call_that_was_running_when_its_stream_was_left_is_not_run_again():
    shop, model = Shop(seconds=30), FakeModel(calls(PAY), says("Done."))
    async with listening(model, tools=shop.tools) as url, httpx2.AsyncClient(base_url=url) as asking:
        reading, _ = await waiting_stream(asking)
        (waiting,) = await listed(asking)
        await answer(asking, waiting["id"], approve=True)
        await until(lambda: len(shop.paid) == 1)
        reading.cancel()
        await asyncio.wait({reading})
        for _ in range(100):
            view = (await asking.get(f"/v1/approvals/{waiting['id']}")).json()
            if view["status"] == "done":
                break
            await asyncio.sleep(0.05)
        assert view["result"]["code"] == "cancelled"
        assert (await asking.post(f"/v1/approvals/{waiting['id']}", json={"approve": True})).status_code == 409
    assert len(shop.paid) == 1


# After a restart, and after a kill


def app_of(model: FakeModel, store: Path, shop: Shop) -> Starlette:
    return create_app({"m": model}, tools=shop.tools, store=SqliteStore(str(store)))


async def test_what_waits_outlives_the_server(tmp_path: Path):
    shop, later = Shop(), FakeModel(says("Done."))
    options: Any = {"temperature": 0.25, "max_tokens": 99, "response_format": {"type": "json_object"}}
    async with http(app_of(FakeModel(calls(PAY)), tmp_path / "store.db", shop)) as asking:
        (id,) = await asked(asking, **options)
    async with http(app_of(later, tmp_path / "store.db", shop)) as asking:
        assert [one["id"] for one in await listed(asking)] == [id]
        done = await answer(asking, id, approve=True)
    assert done["answer"]["text"] == "Done."
    assert shop.paid == [("pay", 5)]
    (again,) = later.asked
    assert again.messages[0] == Message.user("hi")
    assert (again.sampling.temperature, again.sampling.max_tokens, again.output is not None) == (0.25, 99, True)
    assert [one.name for one in again.tools] == ["pay", "tip"]


async def test_a_call_that_was_running_when_the_server_was_killed_is_not_run_again(tmp_path: Path):
    erased = tmp_path / "erased"
    with killed(tmp_path, ERASING, hang=True) as url:
        asking = httpx2.AsyncClient(base_url=url, timeout=20)
        (id,) = await asked(asking)
        deciding = asyncio.create_task(asking.post(f"/v1/approvals/{id}", json={"approve": True}))
        await until(erased.exists)
        assert (await asking.get(f"/v1/approvals/{id}")).json()["status"] == "running"
    with pytest.raises(httpx2.TransportError):
        await deciding
    with killed(tmp_path, "I do not know.") as url:
        asking = httpx2.AsyncClient(base_url=url, timeout=20)
        assert (await asking.get(f"/v1/approvals/{id}")).json()["status"] == "running"
        await asyncio.sleep(0.7)  # until nobody can be at it any more
        assert (await asking.post(f"/v1/approvals/{id}", json={"approve": False})).status_code == 409
        done = await answer(asking, id, approve=True)
        assert (done["status"], done["result"]["code"]) == ("done", "interrupted")
        assert done["answer"]["text"] == "I do not know."
        assert (await asking.post(f"/v1/approvals/{id}", json={"approve": True})).status_code == 409
    assert erased.read_text() == "a\n"


async def test_a_call_that_was_approved_but_not_begun_runs_when_it_is_approved_once_more(clock: Clock):
    shop, store = Shop(), SqliteStore()
    async with http(create_app({"m": FakeModel(calls(PAY), says("Done."))}, tools=shop.tools, store=store)) as asking:
        (id,) = await asked(asking)
        approvals = kept.Approvals(store)
        await approvals.decide((await approvals.get(id))[id], Approved())  # and then the process was gone
        assert (await asking.post(f"/v1/approvals/{id}", json={"approve": True})).status_code == 409
        clock.advance(kept.LEASE_SECONDS)
        done = await answer(asking, id, approve=True)
    assert done["answer"]["text"] == "Done."
    assert len(shop.paid) == 1


async def test_a_run_is_held_by_one_and_a_hold_that_nobody_keeps_up_lapses(monkeypatch: pytest.MonkeyPatch, clock: Clock):
    class Counting(SqliteStore):
        puts = 0

        async def put(self, *documents: Any, durable: bool = False) -> None:
            await super().put(*documents, durable=durable)
            self.puts += 1

    monkeypatch.setattr(kept, "LEASE_SECONDS", 0.3)
    store = Counting(clock=lambda: clock.now)
    approvals = kept.Approvals(store)
    async with approvals.lease("r") as first, approvals.lease("r") as second, approvals.lease("other") as other:
        clock.advance(0.2)
        renewed = store.puts
        await until(lambda: store.puts >= renewed + 4)  # both leases, after the clock went on
        clock.advance(0.2)
        async with approvals.lease("r") as third:
            assert (first, second, third, other) == (True, False, False, True)
    async with approvals.lease("r") as again:
        assert again
    monkeypatch.setattr(kept.Approvals, "_renew", lambda *_: asyncio.sleep(60))
    async with approvals.lease("r"):
        clock.advance(0.4)
        async with approvals.lease("r") as taken:
            assert taken


async def test_whoever_lost_a_run_to_another_does_not_take_it_away_from_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept, "LEASE_SECONDS", 0.3)
    store = SqliteStore()
    approvals = kept.Approvals(store)
    async with approvals.lease("r"):
        (hold,) = await store.list("held_run")
        await store.put(replace(hold, data="another's", version=None, expires=time.time() + 60))
        await asyncio.sleep(0.25)  # until the next time it would have been kept up
    assert [one.data for one in await store.list("held_run")] == ["another's"]


async def test_whoever_lost_a_run_to_another_writes_nothing_more_of_it():
    store = SqliteStore()
    approvals = kept.Approvals(store)
    async with http(create_app({"m": FakeModel(calls(PAY))}, tools=Shop().tools, store=store)) as asking:
        await asked(asking)
    (document,) = await store.list("paused_run")
    paused = await approvals.paused(document.id)
    assert paused is not None
    await approvals.write(paused)
    with pytest.raises(Stale):
        await approvals.write(paused)  # as it was before
