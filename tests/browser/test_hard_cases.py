"""The page when things go wrong or grow large: a server that dies, a key that is withdrawn, huge results, long conversations."""

from pathlib import Path

import httpx2
import pytest

from callsmith.core.values import Call
from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Settings
from callsmith.tools.functions import Functions, tool
from tests.browser.pages import expect, opened, say, violations
from tests.fakes import FakeModel
from tests.server.asking import calls, says
from tests.serving import free_port, killed_program, served

pytestmark = pytest.mark.browser

SLOW_SERVER = """
import sys, uvicorn
from callsmith.core.events import Text
from callsmith.server.app import create_app
from callsmith.server.store import leases
from callsmith.server.store.sqlite import SqliteStore
from tests.fakes import FakeModel
from tests.server.asking import says

leases.LEASE_SECONDS = 0.6
slow = [Text("One. "), Text("Two. "), 60.0]
model = FakeModel(slow if sys.argv[2] == "slow" else says("Here I am again."))
uvicorn.run(create_app({"m": model}, store=SqliteStore(sys.argv[1])), port=PORT, log_level="critical", lifespan="off")
"""


async def test_a_server_that_dies_in_the_middle_of_a_turn_is_told_of_and_the_turn_can_be_tried_again(tmp_path: Path):
    port, store = free_port(), str(tmp_path / "store.db")
    with killed_program(SLOW_SERVER, store, "slow", port=port) as url:
        opening = opened(url)
        page = await opening.__aenter__()
        await say(page, "Count.")
        await page.get_by_text("One. Two.").wait_for()
    await page.get_by_text("The connection is lost.").wait_for()
    with killed_program(SLOW_SERVER, store, "quick", port=port):
        await page.locator(".notice", has_text="the server was stopped before the response was complete").wait_for()
        await expect(page.locator(".bubble")).to_have_text(["Count."])
        await page.reload()
        await page.locator(".bubble", has_text="Count.").wait_for()
        await page.get_by_role("button", name="Try again").click()
        await page.get_by_text("Here I am again.").wait_for()
        await page.reload()
        await page.get_by_text("Here I am again.").wait_for()
        await expect(page.locator(".bubble")).to_have_text(["Count."])
        await opening.__aexit__(None, None, None)


async def test_the_page_asks_for_a_key_again_where_it_is_wrong_or_withdrawn():
    keys = {"ada": Key(hash_key("sk-ada")), "eve": Key(hash_key("sk-eve"))}
    app = create_app({"m": FakeModel(says("Hello Ada."))}, settings=Settings(keys=keys))
    async with served(app) as url, opened(url) as page:
        await page.get_by_role("textbox", name="Key").fill("sk-wrong")
        await page.get_by_role("button", name="Open").click()
        await page.get_by_text("this key is not known here").wait_for()
        assert await violations(page) == []
        await page.get_by_role("textbox", name="Key").fill("sk-ada")
        await page.get_by_role("button", name="Open").click()
        await say(page, "Hello.")
        await page.get_by_text("Hello Ada.").wait_for()
        assert await page.evaluate("localStorage.getItem('callsmith.key')") is None
        del keys["ada"]  # withdrawn
        await say(page, "Still there?")
        await page.get_by_role("heading", name="This server wants a key").wait_for()
        await page.get_by_role("textbox", name="Key").fill("sk-eve")
        await page.get_by_role("button", name="Open").click()
        await page.locator(".notice.failed").wait_for()  # Ada's conversation does not exist for Eve
        await page.keyboard.press("Control+k")
        await say(page, "Hello again.")
        await page.locator(".bubble", has_text="Hello again.").wait_for()
        await page.get_by_text("Hello Ada.").wait_for()


async def test_of_a_huge_result_a_part_is_shown_with_its_size():
    @tool
    async def dump() -> str:
        """Everything."""
        return "0123456789" * 5_000_000

    async with (
        served(create_app({"m": FakeModel(calls(Call("dump", {}, "c1")), says("That was much."))}, tools=Functions(dump))) as url,
        opened(url) as page,
    ):
        received = list[int]()
        page.on("response", lambda response: received.append(int(response.headers.get("content-length", "0"))))
        await say(page, "Dump it.")
        await page.get_by_text("That was much.").wait_for()
        await page.locator(".call summary").click()
        await page.locator(".call pre").last.wait_for()
        assert 1000 < len(await page.locator(".call pre").last.inner_text()) <= 6000
        await page.get_by_role("button", name="Show all (40.").click()
        await expect(page.get_by_role("button", name="Show all (40.")).to_be_hidden()
        assert 6000 < len(await page.locator(".call pre").last.inner_text()) < 50_000
        await page.reload()
        await page.get_by_text("That was much.").wait_for()


async def long_conversation(url: str, messages: int) -> str:
    async with httpx2.AsyncClient(base_url=url) as asking:
        id = (await asking.post("/v1/conversations", json={"metadata": {"title": "Long"}})).json()["id"]
        for start in range(0, messages, 20):
            items = [
                {"role": "assistant" if at % 2 else "user", "content": f"Message {at}. " + "word " * (at % 40)}
                for at in range(start, start + 20)
            ]
            assert (await asking.post(f"/v1/conversations/{id}/items", json={"items": items})).status_code == 200
        return id


async def test_two_thousand_messages_are_loaded_as_they_are_scrolled_to_and_stay_where_they_are():
    async with served(create_app({"m": FakeModel(says("And on."))})) as url:
        id = await long_conversation(url, 2000)
        async with opened(f"{url}#/c/{id}") as page:
            await page.get_by_text("Message 1999.").wait_for()
            assert await page.locator(".turn").count() <= 100
            jumps = await page.evaluate(SCROLL_UP)
            assert jumps == []
            await expect(page.locator(".turn")).to_have_count(1000)
            first = await page.locator(".bubble").first.inner_text()
            assert first.startswith("Message 0.")
            await say(page, "Go on.")
            await page.get_by_text("And on.").wait_for()


# Scrolls up to the first message, and tells where what stood in the middle of the window was moved by what was put before it.
SCROLL_UP = """async () => {
  const scroller = document.getElementById("scroller");
  const frame = () => new Promise(requestAnimationFrame);
  const jumps = [];
  for (let still = 0; still < 20; ) {
    scroller.scrollTop -= 1200;
    await frame();
    const shown = document.elementFromPoint(innerWidth / 2, innerHeight / 2)?.closest(".turn");
    const before = shown?.getBoundingClientRect().top;
    const count = document.querySelectorAll(".turn").length;
    await frame();
    await frame();
    const after = shown?.getBoundingClientRect().top;
    if (document.querySelectorAll(".turn").length > count && Math.abs(after - before) > 300) jumps.push([before, after]);
    still = scroller.scrollTop === 0 && document.querySelectorAll(".turn").length === count ? still + 1 : 0;
  }
  return jumps;
}"""
