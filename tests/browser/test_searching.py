"""The page in a browser: conversations searched by their titles and by what is said in them."""

from typing import Any

import httpx2
import pytest

from callsmith.server.app import create_app
from tests.browser.pages import PHONE, expect, opened, violations
from tests.browser.test_hard_cases import long_conversation
from tests.fakes import FakeModel
from tests.server.asking import says
from tests.serving import served

pytestmark = pytest.mark.browser

HOSTILE = '<img src=x onerror="window.hit = 1"> needle <script>window.hit = 1</script>'


async def conversation(url: str, title: str, *said: str) -> str:
    async with httpx2.AsyncClient(base_url=url) as asking:
        items = [{"role": "user", "content": text} for text in said]
        made = await asking.post("/v1/conversations", json={"metadata": {"title": title}, "items": items})
        return made.json()["id"]


async def search(page: Any, text: str) -> None:
    await page.get_by_role("searchbox", name="Search conversations").fill(text)


async def test_a_search_finds_titles_and_messages_and_leads_to_the_message():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url:
        await conversation(url, "Gardening", "When do I plant tomatoes?")
        await conversation(url, "Tomatoes <b>and</b> more", "Hello.")
        await conversation(url, "Wood", HOSTILE)
        long = await long_conversation(url, 400)
        async with opened(url) as page:
            await page.get_by_role("link", name="Long").wait_for()
            await search(page, "tomatoes")
            await page.locator("#search-hint", has_text="2 found.").wait_for()
            await expect(page.locator("#conversations .name")).to_have_text(["Tomatoes <b>and</b> more", "Gardening"])
            await expect(page.locator("mark")).to_have_text(["tomatoes"])
            assert await violations(page) == []
            await search(page, "message 7.")
            await page.locator("#search-hint", has_text="1 found.").wait_for()
            await page.get_by_role("link", name="Long").click()
            found = page.locator(".turn.found")
            await found.wait_for()
            await expect(found).to_contain_text("Message 6.")
            await expect(found).to_be_focused()
            top = await found.evaluate("(it) => it.getBoundingClientRect().top")
            assert 0 <= top < 700
            assert long in page.url
            await search(page, "needle")
            await page.locator("mark", has_text="needle").wait_for()
            assert await page.evaluate("window.hit") is None
            assert await page.locator("#conversations").locator("img, script").count() == 0
            await search(page, "nowhere at all")
            await page.locator(
                "#search-hint", has_text='No conversation has "nowhere at all" in its title or in a message.'
            ).wait_for()
            await page.keyboard.press("Escape")
            await page.get_by_role("link", name="Gardening").wait_for()
            await expect(page.locator("#conversations a")).to_have_count(4)


async def test_a_search_on_a_server_that_is_gone_says_so():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url, viewport=PHONE) as page:
        await page.get_by_text("What shall we do?").wait_for()
        await page.get_by_role("button", name="Conversations").click()
        await page.route("**/v1/conversations?*", lambda route: route.abort())
        await search(page, "tea")
        await page.get_by_text("Error: The server could not be reached.").first.wait_for()
        await page.unroute("**/v1/conversations?*")
        await search(page, "tea!")
        await page.locator("#search-hint", has_text="No conversation has").wait_for()
