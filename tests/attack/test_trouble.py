"""What is messages when something is wrong: calls of a server that was killed, a full disk, a model that is not for a key."""

import asyncio
import io
import logging
from dataclasses import replace

import pytest

from callsmith.core.approval import Approved
from callsmith.core.errors import StoreUnavailable
from callsmith.core.values import Call
from callsmith.runtime.dispatch import Dispatcher
from callsmith.server.app import create_app
from callsmith.server.approvals.approvals import Approval, Approvals
from callsmith.server.http.keys import hash_key
from callsmith.server.http.logs import LineFormatter, OnceAMinute
from callsmith.server.settings import Key, Settings
from callsmith.server.store.sqlite import SqliteStore
from tests.fakes import FakeModel, Handlers
from tests.server.asking import HI, http, says


@pytest.mark.parametrize("subject", ["", "alice"])
async def test_a_call_that_ran_when_its_server_was_killed_is_found_out_when_another_starts(subject: str):
    store = SqliteStore()
    ran = Approval("a1", "run1", Call("erase", {}, "c1"), "", "", 0.0, 2e9, decision=Approved(), has_begun=True)
    approvals = Approvals(store, subject)
    await approvals.write(ran, replace(ran, id="a2", has_begun=False, decision=None))
    app = create_app({"m": FakeModel(says("a"))}, settings=Settings(keys={"alice": Key(hash_key("k"))}), store=store)
    async with app.router.lifespan_context(app):
        async with asyncio.timeout(20):
            while (stored := await approvals.get("a1", "a2"))["a1"].status == "running":
                await asyncio.sleep(0.05)
    assert stored["a1"].result is not None and stored["a1"].result.code == "interrupted"
    assert stored["a2"].status == "pending"


async def test_a_store_that_fails_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture):
    log_text = io.StringIO()
    handler = logging.StreamHandler(log_text)
    handler.setFormatter(LineFormatter(as_json=False))
    handler.addFilter(OnceAMinute())

    async def draw(call: Call) -> str:
        raise StoreUnavailable("the store failed: database or disk is full")

    log = logging.getLogger("callsmith")
    log.addHandler(handler)
    try:
        for number in range(5):
            await Dispatcher(Handlers(draw=draw)).dispatch(Call("draw", {}, f"c{number}"))
    finally:
        log.removeHandler(handler)
    (line,) = log_text.getvalue().splitlines()
    assert "disk is full" in line


def test_trouble_is_told_again_after_a_minute_with_how_often_it_came(monkeypatch: pytest.MonkeyPatch):
    times = iter((100.0, 101.0, 102.0, 161.0))
    monkeypatch.setattr("callsmith.server.http.logs.time.monotonic", lambda: next(times))
    once, messages = OnceAMinute(), list[str]()
    for _ in range(4):
        record = logging.LogRecord("a", logging.ERROR, "", 0, "the disk is %s", ("full",), None)
        messages += [record.getMessage()] if once.filter(record) else []
    assert messages == ["the disk is full", "the disk is full (and 2 times before)"]


async def test_an_alias_of_a_model_that_a_key_does_not_open_tells_nothing_of_it():
    keys = {"alice": Key(hash_key("alice"), models=("small",))}
    models = {"small": FakeModel(says("a")), "the-secret-one": FakeModel(says("b"))}
    app = create_app(models, settings=Settings(keys=keys, aliases={"big": "the-secret-one", "default": "the-secret-one"}))
    async with http(app) as asking:
        asking.headers["authorization"] = "Bearer alice"
        bodies = [{"model": "big", "messages": HI}, {"model": "default", "messages": HI}]
        by_name, default = [await asking.post("/v1/chat/completions", json=body) for body in bodies]
    assert (by_name.status_code, default.status_code) == (404, 200)
    assert "secret" not in by_name.text + default.text
