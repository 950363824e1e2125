"""`/v1/conversations`, held against OpenAI's own client, and responses that are added to one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from callsmith.core.errors import Unavailable
from callsmith.core.events import Text
from callsmith.server.app import create_app
from callsmith.server.http.keys import new_key
from callsmith.server.settings import Key, Settings
from callsmith.server.store.sqlite import SqliteStore
from tests.fakes import FakeModel
from tests.server.asking import BONN, calls, client, http, says
from tests.server.sockets import connected

WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {}}}}


def user(text: str) -> Any:
    return {"type": "message", "role": "user", "content": text}


def messages_sent(model: FakeModel) -> list[str]:
    return [message.content for message in model.asked[-1].messages]


async def texts(asking: AsyncOpenAI, id: str) -> list[str]:
    return [item.content[0].text async for item in asking.conversations.items.list(id, order="asc")]  # pyright: ignore


async def test_a_conversation_is_created_found_updated_and_deleted():
    asking = client(FakeModel(says("one")))
    created = await asking.conversations.create(metadata={"topic": "tea"}, items=[user("a")])
    assert (created.object, created.metadata) == ("conversation", {"topic": "tea"})
    assert await asking.conversations.retrieve(created.id) == created
    updated = await asking.conversations.update(created.id, metadata={"topic": "coffee"})
    assert (updated.metadata, updated.created_at) == ({"topic": "coffee"}, created.created_at)
    assert await texts(asking, created.id) == ["a"]
    gone = await asking.conversations.delete(created.id)
    assert (gone.id, gone.deleted, gone.object) == (created.id, True, "conversation.deleted")
    with pytest.raises(NotFoundError):
        await asking.conversations.retrieve(created.id)


async def test_items_are_added_listed_in_pages_found_and_deleted():
    asking = client(FakeModel(says("one")))
    id = (await asking.conversations.create()).id
    added = await asking.conversations.items.create(id, items=[user("a"), user("b")])
    assert (added.data[0].id, added.data[1].id, added.has_more) == (added.first_id, added.last_id, False)
    await asking.conversations.items.create(id, items=[user("c")])
    page = await asking.conversations.items.list(id, limit=2)
    assert ([item.content[0].text for item in page.data], page.has_more) == (["c", "b"], True)  # pyright: ignore
    assert await texts(asking, id) == ["a", "b", "c"]
    first: Any = added.data[0]
    assert await asking.conversations.items.retrieve(first.id, conversation_id=id) == first
    assert (await asking.conversations.items.delete(first.id, conversation_id=id)).id == id
    assert await texts(asking, id) == ["b", "c"]
    with pytest.raises(NotFoundError):
        await asking.conversations.items.retrieve(first.id, conversation_id=id)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_told_its_conversation_and_added_to_it(stream: bool):
    model = FakeModel(calls(BONN), says("sun"), says("bye"))
    asking = client(model)
    id = (await asking.conversations.create(items=[user("hello")])).id

    async def respond(**body: Any) -> Any:
        response = await asking.responses.create(model="m", stream=stream, tools=[WEATHER], **body)
        return [event async for event in response][-1].response if stream else response

    first = await respond(input="weather?", conversation=id)
    assert first.conversation.id == id
    await respond(input=[{"type": "function_call_output", "call_id": "c1", "output": "sunny"}], conversation={"id": id})
    await respond(input="thanks", conversation=id)
    assert messages_sent(model) == ["hello", "weather?", "", "sunny", "sun", "thanks"]
    kinds = [item.type async for item in asking.conversations.items.list(id, order="asc")]
    assert kinds == ["message", "message", "function_call", "function_call_output", "message", "message", "message"]


async def test_a_response_that_is_not_stored_is_added_all_the_same():
    store = SqliteStore()
    asking = client(FakeModel(says("one")), store=store)
    id = (await asking.conversations.create()).id
    await asking.responses.create(model="m", input="a", conversation=id, store=False)
    assert await texts(asking, id) == ["a", "one"]
    assert await store.list("response") == ()
    await asking.conversations.delete(id)
    assert await store.list("response_item") == ()  # nobody else has them


async def test_what_belongs_to_a_stored_response_outlives_the_conversation():
    asking = client(FakeModel(says("one")))
    id = (await asking.conversations.create()).id
    response = await asking.responses.create(model="m", input="a", conversation=id)
    await asking.conversations.delete(id)
    assert (await asking.responses.retrieve(response.id)).output_text == "one"


async def test_a_response_that_failed_is_not_added():
    model = FakeModel([Text("o"), Unavailable("gone")])
    asking = client(model)
    id = (await asking.conversations.create()).id
    events = [event async for event in await asking.responses.create(model="m", input="a", conversation=id, stream=True)]
    assert events[-1].type == "response.failed"
    assert await texts(asking, id) == []


async def test_responses_at_the_same_time_are_all_added_each_in_one_piece():
    asking = client(FakeModel([Text("re"), 0.01, *says("ply")]))
    id = (await asking.conversations.create()).id
    await asyncio.gather(*(asking.responses.create(model="m", input=f"ask {n}", conversation=id) for n in range(6)))
    items = await texts(asking, id)
    assert sorted(items[::2]) == [f"ask {n}" for n in range(6)]
    assert items[1::2] == ["reply"] * 6


async def test_a_conversation_deleted_during_a_response_stays_deleted():
    model = FakeModel([Text("a"), 0.3, *says("b")])
    asking = client(model)
    id = (await asking.conversations.create()).id
    responding = asyncio.create_task(asking.responses.create(model="m", input="a", conversation=id))
    while not model.asked:
        await asyncio.sleep(0.01)
    await asking.conversations.delete(id)
    response = await responding
    assert (await asking.responses.retrieve(response.id)).output_text == "ab"
    with pytest.raises(NotFoundError):
        await asking.conversations.retrieve(id)


async def test_a_conversation_outlives_the_server(tmp_path: Path):
    store = SqliteStore(str(tmp_path / "store.db"))
    asking = client(FakeModel(says("one")), store=store)
    id = (await asking.conversations.create()).id
    await asking.responses.create(model="m", input="a", conversation=id)
    store.close()
    model = FakeModel(says("two"))
    await client(model, store=SqliteStore(str(tmp_path / "store.db"))).responses.create(model="m", input="b", conversation=id)
    assert messages_sent(model) == ["a", "one", "b"]


async def test_a_conversation_goes_on_over_websocket():
    model = FakeModel(says("one"), says("two"))
    app = create_app({"m": model})
    async with http(app) as asking, connected(app) as socket:
        id = (await asking.post("/v1/conversations", json={})).json()["id"]
        await socket.answer(input="a", conversation=id, store=False)
        await socket.answer(input="b", conversation=id, store=False)
    assert messages_sent(model) == ["a", "one", "b"]


async def test_a_conversation_belongs_to_the_key_that_made_it():
    keys = {name: new_key() for name in ("ann", "bob")}
    settings = Settings(keys={name: Key(hash) for name, (_, hash) in keys.items()})
    async with http(create_app({"m": FakeModel(says("one"))}, settings=settings)) as asking:
        ann, bob = ({"authorization": f"Bearer {keys[name][0]}"} for name in ("ann", "bob"))
        created = (await asking.post("/v1/conversations", json={"items": [user("a")]}, headers=ann)).json()
        path = f"/v1/conversations/{created['id']}"
        item = (await asking.get(f"{path}/items", headers=ann)).json()["first_id"]
        body = {"model": "m", "input": "x", "conversation": created["id"]}
        refused = [
            await asking.get(path, headers=bob),
            await asking.post(path, json={"metadata": {}}, headers=bob),
            await asking.delete(path, headers=bob),
            await asking.get(f"{path}/items", headers=bob),
            await asking.post(f"{path}/items", json={"items": [user("b")]}, headers=bob),
            await asking.get(f"{path}/items/{item}", headers=bob),
            await asking.delete(f"{path}/items/{item}", headers=bob),
            await asking.post("/v1/responses", json=body, headers=bob),
        ]
        assert [item.status_code for item in refused] == [404] * 8
        assert (await asking.get(f"{path}/items", headers=ann)).json()["first_id"] == item


async def test_what_is_wrong_is_said():
    asking = client(FakeModel(says("one")))
    id = (await asking.conversations.create()).id
    first = await asking.responses.create(model="m", input="a")
    wrong: list[tuple[Any, str]] = [
        (asking.conversations.create(items=[user("a")] * 21), "items"),
        (asking.conversations.items.create(id, items=[]), "items"),
        (asking.conversations.items.create(id, items=[{"type": "unheard_of"}]), "items.0.type"),  # pyright: ignore
        (asking.conversations.update(id, metadata={"a": 1}), "metadata.a"),  # pyright: ignore
        (asking.responses.create(model="m", input="b", conversation=id, previous_response_id=first.id), "conversation"),
    ]
    for body, param in wrong:
        with pytest.raises(BadRequestError) as raised:
            await body
        assert raised.value.param == param


async def pages(asking: AsyncOpenAI, limit: int) -> list[list[str]]:
    pages, after = list[list[str]](), ""
    while True:
        query = f"?limit={limit}" + (f"&after={after}" if after else "")
        page: Any = await asking.get(f"/conversations{query}", cast_to=object)
        pages.append([entry["metadata"]["name"] for entry in page["data"]])
        ids = [entry["id"] for entry in page["data"]]
        assert (page["object"], page["first_id"], page["last_id"]) == ("list", ids[0], ids[-1])
        if not page["has_more"]:
            return pages
        after = page["last_id"]


async def test_conversations_are_listed_page_by_page_and_the_one_last_added_to_comes_first(tmp_path: Path):
    store = str(tmp_path / "store.db")
    asking = client(FakeModel(says("one")), store=SqliteStore(store))
    created = {name: await asking.conversations.create(metadata={"name": name}) for name in ("a", "b", "c")}
    assert await pages(asking, 2) == [["c", "b"], ["a"]]
    await asking.responses.create(model="m", input="hi", conversation=created["a"].id)
    assert await pages(asking, 3) == [["a", "c", "b"]]
    await asking.conversations.delete(created["c"].id)
    restarted = client(FakeModel(says("one")), store=SqliteStore(store))
    assert await pages(restarted, 1) == [["a"], ["b"]]
    listed: Any = await asking.get("/conversations", cast_to=object)
    assert listed["data"][0] == {
        "id": created["a"].id,
        "object": "conversation",
        "created_at": created["a"].created_at,
        "metadata": {"name": "a"},
    }


async def test_a_page_that_cannot_be_is_refused():
    asking = client(FakeModel(says("one")))
    empty: Any = await asking.get("/conversations", cast_to=object)
    assert (empty["data"], empty["has_more"], empty["last_id"]) == ([], False, None)
    for limit in ("0", "101", "x", "-1"):
        with pytest.raises(BadRequestError):
            await asking.get(f"/conversations?limit={limit}", cast_to=object)
    with pytest.raises(NotFoundError):
        await asking.get("/conversations?after=conv_none", cast_to=object)


async def test_a_caller_lists_its_own_conversations_only():
    keys = {name: new_key() for name in ("alice", "bob")}
    settings = Settings(keys={name: Key(hashed, scopes=("admin",)) for name, (_, hashed) in keys.items()})
    app = create_app({"m": FakeModel(says("one"))}, settings=settings)
    async with http(app) as plain:
        asking = {
            name: AsyncOpenAI(base_url="http://localhost/v1", api_key=key, http_client=plain, max_retries=0)
            for name, (key, _) in keys.items()
        }
        theirs = await asking["alice"].conversations.create(metadata={"name": "alice's"})
        await asking["bob"].conversations.create(metadata={"name": "bob's"})
        assert await pages(asking["bob"], 10) == [["bob's"]]
        with pytest.raises(NotFoundError):
            await asking["bob"].get(f"/conversations?after={theirs.id}", cast_to=object)


async def test_a_conversation_begins_with_what_another_has_and_both_go_on_apart():
    model = FakeModel(says("one"), says("two"), says("other two"))
    asking, metadata = client(model), {"title": "first"}
    old = (await asking.conversations.create(metadata=metadata)).id
    await asking.responses.create(input="a", conversation=old)
    await asking.responses.create(input="b", conversation=old)
    second = [item async for item in asking.conversations.items.list(old, order="asc")][2]
    begun = await asking.conversations.create(extra_body={"from": {"conversation": old, "before": second.id}})
    assert await texts(asking, begun.id) == ["a", "one"]
    await asking.responses.create(input="B", conversation=begun.id)
    assert messages_sent(model) == ["a", "one", "B"]
    whole = await asking.conversations.create(extra_body={"from": {"conversation": old}})
    assert await texts(asking, whole.id) == await texts(asking, old) == ["a", "one", "b", "two"]
    await asking.conversations.delete(old)
    assert await texts(asking, begun.id) == ["a", "one", "B", "other two"]
    assert await texts(asking, whole.id) == ["a", "one", "b", "two"]
    for source in ({"conversation": old}, {"conversation": whole.id, "before": "msg_nowhere"}):
        with pytest.raises(NotFoundError):
            await asking.conversations.create(extra_body={"from": source})
    with pytest.raises(BadRequestError, match="conversation"):
        await asking.conversations.create(extra_body={"from": {}})


async def search(asking: AsyncOpenAI, query: str, **more: str | int) -> Any:
    return await asking.get("/conversations", cast_to=object, options={"params": {"query": query, **more}})


async def test_conversations_are_found_by_their_title_and_by_what_is_said_in_them():
    asking = client(FakeModel(says("one")))
    tea = await asking.conversations.create(metadata={"title": "About Tea"}, items=[user("leaves"), user("more LEAVES (dried)")])
    wood = await asking.conversations.create(metadata={"title": "wood", "settings": "tea"}, items=[user("leaves " * 30)])
    page = await search(asking, "leaves")
    assert [one["id"] for one in page["data"]] == [wood.id, tea.id]
    assert page["data"][1]["match"] | {"item": ""} == {"item": "", "before": "more ", "text": "LEAVES", "after": " (dried)"}
    assert all(len(page["data"][0]["match"][side]) <= 60 for side in ("before", "after"))
    assert (page["has_more"], page["last_id"]) == (False, tea.id)
    assert [(one["id"], "match" in one) for one in (await search(asking, "about t"))["data"]] == [(tea.id, False)]
    assert [one["id"] for one in (await search(asking, "tea"))["data"]] == [tea.id]
    assert (await search(asking, "(.*)"))["data"] == []
    first = await search(asking, "leaves", limit=1)
    assert ([one["id"] for one in first["data"]], first["has_more"]) == ([wood.id], True)
    rest = await search(asking, "leaves", after=first["last_id"])
    assert [one["id"] for one in rest["data"]] == [tea.id]
    for wrong in ("  ", "x" * 201):
        with pytest.raises(BadRequestError, match="1 to 200"):
            await search(asking, wrong)


async def test_a_search_reads_every_way_in_which_a_message_is_written():
    asking = client(FakeModel(says("one")))
    picture: Any = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    content: Any = ["plain ", {"type": "input_text", "text": "needle"}, picture]
    call: Any = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "needle"}'}
    items: Any = [{"role": "user", "content": content}, call, {"role": "user", "content": ""}]
    made = await asking.conversations.create(items=items)
    page = await search(asking, "plain needle")
    assert [(one["id"], one["match"]["text"]) for one in page["data"]] == [(made.id, "plain needle")]


async def test_a_search_finds_capital_and_small_letters_of_every_script_in_their_places():
    asking = client(FakeModel(says("one")))
    made = await asking.conversations.create(items=[user("İİ Straße, ΟΔΟΣ, МОСКВА")])
    for query, shown in {"straße": "Straße", "οδοσ,": "ΟΔΟΣ,", "москва": "МОСКВА", "i": "İ"}.items():
        page = await search(asking, query)
        assert [(one["id"], one["match"]["text"]) for one in page["data"]] == [(made.id, shown)]


async def test_a_search_that_takes_long_goes_on_with_the_next_request(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("callsmith.server.routes.responses.conversations._SEARCH_SECONDS", -1.0)
    asking = client(FakeModel(says("one")))
    ids = [(await asking.conversations.create(items=[user(text)])).id for text in ("needle", "hay", "straw")]
    found, after, pages = list[str](), {}, 0
    while True:
        page = await search(asking, "needle", **after)
        found += [one["id"] for one in page["data"]]
        after, pages = {"after": page["last_id"]}, pages + 1
        if not page["has_more"]:
            break
    assert (found, pages) == ([ids[0]], 3)
