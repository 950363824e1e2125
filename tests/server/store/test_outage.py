"""An outage of the store: requests that need none go on, the others are told to try again later, and nothing runs twice."""

import asyncio
from typing import Any

import pytest

from callsmith.core.errors import StoreUnavailable
from callsmith.core.values import Json
from callsmith.server.app import create_app
from callsmith.server.routes import health
from callsmith.server.routes.health import StoreProbe
from callsmith.server.store import Document, leases
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.functions import Functions, tool
from tests.fakes import FakeModel
from tests.server.approvals.shop import PAY, Shop, answer, asked
from tests.server.asking import HI, calls, http, says


class Unsteady(SqliteStore):
    """A store that is unreachable when it has to be."""

    is_unreachable = False
    fails_at: int | None = None  # the writes until it goes away
    fails_behind = False  # it goes away when it has written, and before it says so

    def come_back(self) -> None:
        self.is_unreachable, self.fails_at = False, None

    def _use(self) -> None:
        if self.is_unreachable:
            raise StoreUnavailable("the store is unreachable: connection refused", seconds=3)

    async def get(self, kind: str, *ids: str) -> dict[str, Document]:
        if ids:
            self._use()
        return await super().get(kind, *ids)

    async def put(self, *documents: Document, durable: bool = False) -> None:
        self._use()
        fails = self.fails_at == 0
        self.fails_at = None if self.fails_at is None or fails else self.fails_at - 1
        self.is_unreachable |= fails
        if not fails or self.fails_behind:
            await super().put(*documents, durable=durable)
        self._use()

    async def append(self, *entries: Json) -> int:
        self._use()
        return await super().append(*entries)

    async def check(self) -> None:
        self._use()

    async def ensure(self) -> None:
        self._use()


@pytest.fixture(autouse=True)
def looking_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "StoreProbe", lambda store: StoreProbe(store, seconds=0))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/responses/resp_1", None),
        ("DELETE", "/v1/responses/resp_1", None),
        ("POST", "/v1/responses", {"model": "m", "input": "hi"}),
        ("POST", "/v1/responses", {"model": "m", "input": "hi", "stream": True}),
        ("POST", "/v1/responses", {"model": "m", "input": "hi", "background": True}),
        ("POST", "/v1/conversations", {}),
        ("GET", "/v1/approvals/confirm_1", None),
        ("POST", "/v1/approvals/confirm_1", {"approve": True}),
    ],
)
async def test_who_needs_the_store_is_told_when_to_try_again_and_the_model_is_not_asked(method: str, path: str, body: Any):
    store, model = Unsteady(), FakeModel(says("a"))
    store.is_unreachable = True
    async with http(create_app({"m": model}, store=store)) as asking:
        response = await asking.request(method, path, json=body)
    assert (response.status_code, response.headers["retry-after"]) == (503, "3")
    assert response.json()["error"]["code"] == "store_unavailable"
    assert model.asked == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"model": "m", "messages": HI}),
        ("/v1/messages", {"model": "m", "messages": HI, "max_tokens": 9}),
        ("/api/chat", {"model": "m", "messages": HI, "stream": False}),
        ("/v1/responses", {"model": "m", "input": "hi", "store": False}),
    ],
)
async def test_who_needs_no_store_is_answered(path: str, body: Any):
    store = Unsteady()
    store.is_unreachable = True
    async with http(create_app({"m": FakeModel(says("All is well."))}, tools=Shop().tools, store=store)) as asking:
        response = await asking.post(path, json=body)
    assert response.status_code == 200
    assert "All is well." in response.text


async def test_readiness_says_that_the_store_is_unreachable_unless_it_is_asked_without_it():
    store = Unsteady()
    async with http(create_app({"m": FakeModel(says("a"))}, store=store)) as asking:
        assert (await asking.get("/ready")).status_code == 200
        store.is_unreachable = True
        assert (await asking.get("/ready")).json() == {"ready": False, "why": "store"}
        assert (await asking.get("/ready?without=store")).json() == {"ready": True}
        assert "connection refused" in (await asking.get("/health")).json()["store"]


@pytest.mark.parametrize("fails_at", range(12))
@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.sampled
async def test_an_outage_at_any_write_makes_nothing_happen_twice(
    fails_at: int, is_written: bool, clock: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(leases, "OUTAGE_SECONDS", 0.2)
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.3)
    store, shop = Unsteady(clock=lambda: clock.now), Shop()
    model = FakeModel(calls(PAY), *[says("Done.")] * 4)
    async with http(create_app({"m": model}, tools=shop.tools, store=store)) as asking:
        (id,) = await asked(asking)
        store.fails_at, store.fails_behind = fails_at, is_written
        first = await asking.post(f"/v1/approvals/{id}", json={"approve": True})
        assert first.status_code in (200, 503)
        store.is_unreachable, store.fails_at = False, None
        clock.advance(11)  # until the lease has lapsed
        if (await asking.get(f"/v1/approvals/{id}")).json()["status"] not in ("done", "denied"):
            await answer(asking, id, approve=True)
        done = (await asking.get(f"/v1/approvals/{id}")).json()
    assert done["status"] == "done"
    assert (done["result"]["ok"], len(shop.paid)) in ((True, 1), (False, 1), (False, 0))
    assert done["result"]["ok"] or done["result"]["code"] in ("interrupted", "internal_error")
    assert done["result"]["code"] != "internal_error" or not shop.paid  # nobody is told that it failed although it was done


@pytest.mark.parametrize("is_written", [False, True])
async def test_what_a_tool_has_done_is_stored_once_the_store_is_back(is_written: bool):
    store = Unsteady()

    class Outage(Shop):
        """The store goes away while the tool runs, and comes back some time later."""

        @property
        def tools(self) -> Functions:
            @tool(side_effects=True)
            async def pay(euros: int) -> str:
                self.paid.append(("pay", euros))
                store.fails_at, store.fails_behind = 0, is_written
                asyncio.get_running_loop().call_later(0.5, store.come_back)
                return f"paid {euros}"

            return Functions(pay)

    shop = Outage()
    async with http(create_app({"m": FakeModel(calls(PAY), says("Done."))}, tools=shop.tools, store=store)) as asking:
        (id,) = await asked(asking)
        done = await answer(asking, id, approve=True)
    assert (done["status"], done["result"]["content"], done["answer"]["text"]) == ("done", "paid 5", "Done.")
    assert len(shop.paid) == 1
