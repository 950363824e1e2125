"""The page where somebody goes elsewhere and comes back: by a click, by the browser, while something is on its way."""

import asyncio
from typing import Any

import pytest

from callsmith.core.events import Text
from callsmith.server.app import create_app
from tests.browser.pages import expect, opened, say, slow_down, two_conversations
from tests.browser.test_chat import MAIL, Mailbox
from tests.fakes import FakeModel
from tests.server.asking import calls, says
from tests.serving import served

pytestmark = pytest.mark.browser


async def test_skip_link_keeps_the_conversation():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        await say(page, "First.")
        await page.get_by_role("button", name="Regenerate").wait_for()
        await page.locator("a.skip").focus()
        await page.keyboard.press("Enter")
        await page.wait_for_timeout(500)
        await expect(page.locator(".bubble")).to_have_text(["First."])
        await expect(page.locator("#composer-text")).to_be_focused()


async def test_back_and_forward():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        await say(page, "First.")
        await page.get_by_role("button", name="Regenerate").wait_for()
        await page.go_back()
        await page.get_by_text("What shall we do?").wait_for()
        await page.wait_for_timeout(300)
        await page.evaluate("history.forward()")
        await page.wait_for_timeout(500)
        await expect(page.locator(".bubble")).to_have_text(["First."])


async def test_back_after_a_deletion_is_no_trap():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        page.on("dialog", lambda dialog: dialog.accept())
        await two_conversations(page)
        await page.locator("#conversations li").first.hover()
        await page.get_by_role("button", name='Delete "Second."').click()
        await page.get_by_text("What shall we do?").wait_for()
        first = await page.get_by_role("link", name="First.").get_attribute("href")
        for _ in range(6):
            await page.evaluate("history.back()")
            await page.wait_for_timeout(400)
            if page.url.endswith(first):
                break
        await expect(page.locator(".bubble")).to_have_text(["First."])


async def test_a_conversation_left_before_its_answer_has_begun_has_it_when_one_comes_back():
    model = FakeModel(says("One."), [Text("Slow, "), 6.0, *says("and done.")])
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await say(page, "First.")
        await page.get_by_role("button", name="Regenerate").wait_for()
        await page.keyboard.press("Control+k")
        await slow_down(page, "**/v1/responses", "POST")
        await say(page, "Second.")
        await page.locator(".bubble", has_text="Second.").wait_for()
        await page.get_by_role("link", name="First.").click()
        await page.locator(".bubble", has_text="First.").wait_for()
        await page.wait_for_timeout(1500)
        await page.get_by_role("link", name="Second.").click()
        await page.wait_for_timeout(1500)
        await expect(page.locator(".bubble")).to_have_text(["Second."])


async def test_a_message_that_is_lost_after_one_has_gone_elsewhere_is_there_when_one_comes_back():
    model = FakeModel(says("One."), says("Two."), says("Three."))
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await two_conversations(page)

        async def lose(route: Any) -> None:
            await asyncio.sleep(1)
            await route.abort()

        await page.route("**/v1/responses", lose, times=1)
        await say(page, "Third.")
        await page.locator(".bubble", has_text="Third.").wait_for()
        await page.get_by_role("link", name="First.").click()
        await expect(page.locator(".bubble")).to_have_text(["First."])
        await page.wait_for_timeout(1500)
        for _ in range(2):  # and also when the page is loaded anew
            await page.get_by_role("link", name="Second.").click()
            await expect(page.locator(".bubble")).to_have_text(["Second.", "Third."])
            await expect(page.locator("#turns")).to_contain_text("could not be reached")
            await page.get_by_role("link", name="First.").click()
            await expect(page.locator(".bubble")).to_have_text(["First."])
            await page.reload()
        await page.get_by_role("link", name="Second.").click()
        await page.get_by_role("button", name="Try again").click()
        await expect(page.get_by_text("Three.")).to_be_visible()
        await page.get_by_role("link", name="First.").click()
        await expect(page.locator(".bubble")).to_have_text(["First."])
        await page.get_by_role("link", name="Second.").click()
        await expect(page.locator(".bubble")).to_have_text(["Second.", "Third."])
        await expect(page.locator("#turns")).not_to_contain_text("could not be reached")


async def test_a_message_sent_while_a_conversation_is_being_opened_stays():
    model = FakeModel([Text("The first half, "), 0.5, *says("and the second.")], [3.0, *says("On.")])
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await say(page, "Tell me.")
        await page.get_by_text("The first half").wait_for()
        conversation = page.url
        await page.goto("about:blank")
        await asyncio.sleep(1.5)
        await slow_down(page, "**/v1/responses/*", "GET")
        await page.goto(conversation)
        await page.locator(".bubble", has_text="Tell me.").wait_for()
        await say(page, "Go on.")
        await page.wait_for_timeout(2500)
        await expect(page.locator(".bubble")).to_have_text(["Tell me.", "Go on."])


async def test_stop_before_the_first_event():
    model = FakeModel([Text("So far."), 20.0])
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await page.get_by_text("What shall we do?").wait_for()
        await slow_down(page, "**/v1/responses", "POST")
        await say(page, "Go on.")
        await page.get_by_role("button", name="Stop").wait_for()
        await page.keyboard.press("Escape")
        await page.wait_for_timeout(2500)
        await expect(page.get_by_text("Stopped.")).to_be_visible()


async def test_many_visits_to_a_conversation_that_waits():
    box = Mailbox()
    model = FakeModel(says("One."), calls(MAIL), says("It is out."))
    async with served(create_app({"m": model}, tools=box.tools()), force=True) as url, opened(url) as page:
        await say(page, "First.")
        await page.get_by_role("button", name="Regenerate").wait_for()
        await page.keyboard.press("Control+k")
        await say(page, "Second.")
        await page.get_by_role("button", name="Allow").wait_for()
        for _ in range(7):
            await page.get_by_role("link", name="First.").click()
            await page.locator(".bubble", has_text="First.").wait_for()
            await page.get_by_role("link", name="Second.").click()
            await page.get_by_role("button", name="Allow").wait_for()
        await page.get_by_role("button", name="Allow").click()
        await page.get_by_text("It is out.").wait_for()


async def test_settings_shown_are_those_of_the_conversation():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        await two_conversations(page)
        await page.get_by_role("button", name="Settings of this conversation").click()
        await page.get_by_label("System prompt").fill("Be brief.")
        await page.get_by_role("link", name="First.").click()
        await page.locator(".bubble", has_text="First.").wait_for()
        await page.wait_for_timeout(300)
        field = page.get_by_label("System prompt")
        assert not await field.is_visible() or await field.input_value() == ""


async def test_text_written_while_a_conversation_is_made_stays():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        await page.get_by_text("What shall we do?").wait_for()
        await slow_down(page, "**/v1/conversations", "POST")
        await say(page, "Hello.")
        await page.keyboard.press("Control+a")
        await page.keyboard.type("My next message")
        await page.get_by_text("Hi.").wait_for()
        await expect(page.locator("#composer-text")).to_have_value("My next message")


async def test_a_conversation_that_was_deleted_in_another_tab_can_be_deleted():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        page.on("dialog", lambda dialog: dialog.accept())
        await two_conversations(page)
        href = await page.get_by_role("link", name="First.").get_attribute("href")
        await page.evaluate("(id) => fetch(`/v1/conversations/${id}`, {method: 'DELETE'})", href.removeprefix("#/c/"))
        await page.locator("#conversations li").nth(1).hover()
        await page.get_by_role("button", name='Delete "First."').click()
        await page.wait_for_timeout(800)
        await expect(page.locator("#conversations a")).to_have_text(["Second."])


async def test_regenerate_and_go_elsewhere():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        await two_conversations(page)
        await slow_down(page, "**/v1/conversations/*", "GET")
        await page.get_by_role("button", name="Regenerate").click()
        await page.keyboard.press("Control+k")
        await page.wait_for_timeout(3000)
        await expect(page.locator(".bubble")).to_have_count(0)
        await expect(page.locator("#problem .notice")).to_have_count(0)
        await expect(page.locator("#conversations a")).to_have_count(2)


async def test_delete_while_it_answers():
    model = FakeModel(says("One."), [Text("Slow, "), 3.0, *says("and done.")])
    async with served(create_app({"m": model})) as url, opened(url) as page:
        page.on("dialog", lambda dialog: dialog.accept())
        await say(page, "First.")
        await page.get_by_role("button", name="Regenerate").wait_for()
        await page.keyboard.press("Control+k")
        await say(page, "Second.")
        await page.get_by_text("Slow,").wait_for()
        await page.locator("#conversations li").first.hover()
        await page.get_by_role("button", name='Delete "Second."').click()
        await page.get_by_text("What shall we do?").wait_for()
        await page.wait_for_timeout(4000)
        await expect(page.locator("#conversations a")).to_have_text(["First."])
        await expect(page.locator("#problem .notice")).to_have_count(0)
        assert await page.evaluate("localStorage['callsmith.open']") == "{}"


async def test_stream_switched_and_back():
    model = FakeModel(says("One."), [Text("Slow, "), 3.0, *says("and done.")])
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await say(page, "First.")
        await page.get_by_role("button", name="Regenerate").wait_for()
        await page.keyboard.press("Control+k")
        await say(page, "Second.")
        await page.get_by_text("Slow,").wait_for()
        await page.get_by_role("link", name="First.").click()
        await page.locator(".bubble", has_text="First.").wait_for()
        await page.get_by_role("link", name="Second.").click()
        await page.get_by_text("Slow, and done.").wait_for()
        await expect(page.locator(".bubble")).to_have_text(["Second."])


async def test_who_opens_a_conversation_by_the_keyboard_stays_in_the_list():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        await two_conversations(page)
        await page.get_by_role("link", name="First.").focus()
        await page.keyboard.press("Enter")
        await page.locator(".bubble", has_text="First.").wait_for()
        await expect(page.get_by_role("heading", level=1)).to_have_text("First.")
        await page.wait_for_timeout(300)
        await expect(page.get_by_role("link", name="First.")).to_be_focused()
