"""The page when somebody is quicker than the network: what is pressed twice asks once, and what was clicked last is shown."""

import pytest

from callsmith.server.app import create_app
from tests.browser.pages import expect, opened, say, slow_down, two_conversations
from tests.fakes import FakeModel
from tests.server.asking import says
from tests.serving import served

pytestmark = pytest.mark.browser


async def test_enter_pressed_twice_sends_once():
    model = FakeModel(says("Hi."))
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await page.get_by_text("What shall we do?").wait_for()
        await slow_down(page, "**/v1/conversations", "POST")
        await say(page, "Hello.")
        await page.keyboard.press("Enter")
        await page.keyboard.press("Enter")
        await page.get_by_text("Hi.").first.wait_for()
        await page.wait_for_timeout(1500)
        await expect(page.locator(".bubble")).to_have_text(["Hello."])
        await expect(page.locator("#conversations a")).to_have_count(1)
        assert len(model.asked) == 1


async def test_regenerate_clicked_twice_asks_once():
    model = FakeModel(says("One."), says("Two."))
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await say(page, "Hello.")
        await page.get_by_role("button", name="Regenerate").wait_for()
        await slow_down(page, "**/v1/conversations", "POST")
        await page.get_by_role("button", name="Regenerate").dblclick()
        await page.get_by_text("Two.").first.wait_for()
        await page.wait_for_timeout(1500)
        await expect(page.locator(".bubble")).to_have_text(["Hello."])
        await expect(page.locator("#conversations a")).to_have_count(1)
        assert len(model.asked) == 2


async def test_a_message_is_not_sent_into_the_conversation_that_was_opened_meanwhile():
    model = FakeModel(says("One."), says("Two."))
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await say(page, "Elsewhere.")
        await page.get_by_role("button", name="Regenerate").wait_for()
        await page.keyboard.press("Control+k")
        await say(page, "Hello.")
        await page.get_by_text("Two.").wait_for()
        await page.get_by_role("button", name="Regenerate").wait_for()
        await slow_down(page, "**/v1/conversations/*/items*", "GET")
        await page.get_by_role("button", name="Regenerate").click()
        await page.locator(".bubble").wait_for(state="detached")  # the new version is being opened
        await page.get_by_role("link", name="Elsewhere.").click()
        await page.locator(".bubble", has_text="Elsewhere.").wait_for()
        await page.wait_for_timeout(1500)
        await expect(page.locator(".bubble")).to_have_text(["Elsewhere."])
        assert len(model.asked) == 2


async def test_of_two_conversations_the_one_that_was_clicked_last_is_shown():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        await two_conversations(page)
        await page.keyboard.press("Control+k")
        first = await page.get_by_role("link", name="First.").get_attribute("href")
        await slow_down(page, f"**/v1/conversations/{first.removeprefix('#/c/')}", "GET")
        await page.get_by_role("link", name="First.").click()
        await page.get_by_role("link", name="Second.").click()
        await page.locator(".bubble", has_text="Second.").wait_for()
        await page.wait_for_timeout(1500)
        await expect(page.locator(".bubble")).to_have_text(["Second."])
