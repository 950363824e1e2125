"""The page in a browser: messages edited and sent again, answers regenerated, and what becomes of the earlier version."""

from typing import Any

import pytest

from callsmith.core.errors import Unavailable
from callsmith.core.events import Text
from callsmith.server.app import create_app
from tests.browser.pages import expect, opened, say, violations
from tests.fakes import FakeModel
from tests.server.asking import says
from tests.serving import served

pytestmark = pytest.mark.browser


def asked(model: FakeModel) -> list[str]:
    return [message.content for message in model.asked[-1].messages]


async def edit(page: Any, number: int) -> Any:
    """Open the message for editing, and return the field it is in."""
    await page.locator(".said").nth(number).hover()
    await page.get_by_role("button", name="Edit this message").nth(number).click()
    return page.get_by_role("textbox", name="Edit your message")


async def chat_of_two(page: Any) -> None:
    await say(page, "First?")
    await page.get_by_text("One.").wait_for()
    await page.locator(".summary").wait_for()
    await say(page, "Second?")
    await page.get_by_text("Two.").wait_for()
    await page.locator(".summary").nth(1).wait_for()


@pytest.mark.parametrize("reloads", [False, True])
async def test_an_edited_message_is_answered_anew_and_what_came_after_is_the_earlier_version(reloads: bool):
    model = FakeModel(says("One."), says("Two."), says("Another."), says("On."))
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await chat_of_two(page)
        if reloads:
            await page.reload()
            await page.get_by_text("Two.").wait_for()
        text = await edit(page, 0)
        await expect(text).to_have_value("First?")
        await expect(text).to_be_focused()
        await text.fill("First, really?")
        await page.keyboard.press("Enter")
        await page.get_by_text("Another.").wait_for()
        assert asked(model) == ["First, really?"]
        await expect(page.locator(".bubble")).to_have_text(["First, really?"])
        await expect(page.locator("#conversations a")).to_have_text(["First, really?"])
        await page.reload()
        await page.get_by_text("Another.").wait_for()
        await expect(page.locator(".bubble")).to_have_text(["First, really?"])
        await expect(page.locator("#conversations a")).to_have_text(["First, really?"])
        await page.get_by_role("link", name="Show the earlier version").click()
        await page.get_by_text("Two.").wait_for()
        await expect(page.locator(".bubble")).to_have_text(["First?", "Second?"])
        await page.get_by_role("link", name="Show the newer version").wait_for()
        assert await violations(page) == []
        await say(page, "Third?")  # the earlier one goes on: both are there
        await page.get_by_text("On.").wait_for()
        assert asked(model) == ["First?", "One.", "Second?", "Two.", "Third?"]
        await expect(page.locator("#conversations a")).to_have_text(["First?", "First, really?"])


async def test_an_edit_is_given_up_with_escape_or_the_button_and_nothing_has_changed():
    async with served(create_app({"m": FakeModel(says("One."), says("Two."))})) as url, opened(url) as page:
        await chat_of_two(page)
        for way in ("Escape", "Cancel"):
            text = await edit(page, 1)
            await text.fill("Something else")
            assert await violations(page) == []
            await (page.keyboard.press(way) if way == "Escape" else page.get_by_role("button", name=way).click())
            await text.wait_for(state="detached")
            await expect(page.get_by_role("button", name="Edit this message").nth(1)).to_be_focused()
        await expect(page.locator(".bubble")).to_have_text(["First?", "Second?"])


async def test_an_answer_is_regenerated_and_the_earlier_one_is_kept():
    model = FakeModel(says("One."), says("Two."), says("Better."), says("Best."))
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await chat_of_two(page)
        for answer in ("Better.", "Best."):
            await page.get_by_role("button", name="Regenerate").nth(1).click()
            await page.get_by_text(answer).wait_for()
            await page.locator(".summary").nth(1).wait_for()
            assert asked(model) == ["First?", "One.", "Second?"]
            await expect(page.locator(".bubble")).to_have_text(["First?", "Second?"])
        await expect(page.get_by_text("Two.")).to_have_count(0)
        await expect(page.locator("#conversations a")).to_have_count(1)
        await page.go_back()
        await page.get_by_text("Better.").wait_for()
        await page.go_back()
        await page.get_by_text("Two.").wait_for()


async def test_a_conversation_is_deleted_with_its_earlier_versions():
    model = FakeModel(says("One."), says("Two."), says("Better."))
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await chat_of_two(page)
        await page.get_by_role("button", name="Regenerate").nth(1).click()
        await page.get_by_text("Better.").wait_for()
        await page.locator(".summary").nth(1).wait_for()
        questions: list[str] = []

        async def accept(dialog: Any) -> None:
            questions.append(dialog.message)
            await dialog.accept()

        page.on("dialog", accept)
        await page.locator("#conversations li").hover()
        await page.get_by_role("button", name='Delete "First?"').click()
        await page.get_by_text("What shall we do?").wait_for()
        await page.reload()
        await page.get_by_text("What shall we do?").wait_for()
        assert questions == ['Delete "First?" and its earlier version?']
        await expect(page.locator("#conversations a")).to_have_count(0)


async def test_a_message_whose_answer_failed_is_edited_in_its_place():
    model = FakeModel(says("One."), Unavailable("the engine is out of memory"), says("Now."))
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await say(page, "First?")
        await page.get_by_text("One.").wait_for()
        await page.locator(".summary").wait_for()
        await say(page, "Secnd?")
        failed = await page.locator(".notice.failed").inner_text()
        assert failed.startswith("Error: The engine is out of memory.")
        assert "Try again." in failed
        await (await edit(page, 1)).fill("Second?")
        await page.get_by_role("button", name="Send again").click()
        await page.get_by_text("Now.").wait_for()
        assert asked(model) == ["First?", "One.", "Second?"]
        await expect(page.locator(".bubble")).to_have_text(["First?", "Second?"])
        await expect(page.get_by_role("link", name="Show the earlier version")).to_have_count(0)


async def test_a_stopped_answer_is_tried_again_without_the_question_standing_there_twice():
    model = FakeModel([Text("So far."), 60.0], says("Whole."))
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await say(page, "Go on and on.")
        await page.get_by_text("So far.").wait_for()
        edits = page.get_by_role("button", name="Edit this message")
        await expect(edits).to_be_disabled()
        await page.keyboard.press("Escape")
        await page.get_by_text("Stopped.").wait_for()
        await expect(edits).to_be_enabled()
        await page.get_by_role("button", name="Try again").click()
        await page.get_by_text("Whole.").wait_for()
        assert asked(model) == ["Go on and on."]
        await page.reload()
        await page.get_by_text("Whole.").wait_for()
        await expect(page.locator(".bubble")).to_have_text(["Go on and on."])
