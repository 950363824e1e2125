"""The page in a browser: what fails is told in words that say what happened and what to do."""

from typing import Any

import pytest

from callsmith.core.errors import PromptTooLong
from callsmith.server.app import create_app
from tests.browser.pages import expect, opened, say, violations
from tests.fakes import FakeModel
from tests.server.asking import says
from tests.serving import served

pytestmark = pytest.mark.browser


async def test_a_conversation_that_is_not_there_is_told_of_and_a_new_one_can_begin():
    async with served(create_app({"m": FakeModel(says("Hello."))})) as url, opened(f"{url}#/c/conv_gone") as page:
        await page.get_by_text("Error: This conversation is not here. It was deleted").wait_for()
        assert await violations(page) == []
        await say(page, "Then anew.")
        await page.get_by_text("Hello.").wait_for()
        await expect(page.locator("#problem .notice")).to_have_count(0)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (413, "did not say why. Send less at once."),
        (429, "Wait a moment, then try again."),
        (
            502,
            "answered with status 502 and did not say why. Try again. If it stays like this, the server's log says more.",
        ),
        (0, "The server could not be reached, and it is not known whether it has got this. When it runs again, reload the page"),
    ],
)
async def test_an_answer_that_is_refused_on_the_way_says_what_to_do(status: int, words: str):
    async with served(create_app({"m": FakeModel(says("Hello."))})) as url, opened(url) as page:
        await page.get_by_text("What shall we do?").wait_for()

        async def refuse(route: Any) -> None:
            await (route.fulfill(status=status, body="<h1>Bad</h1>") if status else route.abort())

        await page.route("**/v1/responses", refuse)
        await say(page, "Hello?")
        await page.locator(".notice.failed", has_text=words).wait_for()
        assert (await page.locator(".notice.failed").inner_text()).startswith("Error: The server")
        await page.unroute("**/v1/responses")
        await page.get_by_role("button", name="Try again").click()
        await page.get_by_text("Hello.").wait_for()


async def test_a_model_with_a_mistake_in_it_leads_to_the_log_and_says_so_once():
    async with served(create_app({"m": FakeModel(ZeroDivisionError("oh"), says("Hello."))})) as url, opened(url) as page:
        await say(page, "Hello?")
        notice = page.locator(".notice.failed")
        await notice.wait_for()
        await expect(notice).to_have_text("Error: Internal error; the server's log says more. Try again.")


async def test_a_prompt_that_is_too_long_says_how_it_gets_shorter():
    model = FakeModel(PromptTooLong(9000, 8192), says("Hello."))
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await say(page, "Read all this.")
        notice = page.locator(".notice.failed")
        await notice.wait_for()
        text = await notice.inner_text()
        assert text.startswith("Error: The prompt is too long: 9000 tokens") and text.endswith(
            "attach less, or begin a new chat."
        )


async def test_a_server_that_is_gone_is_told_of_where_it_is_missed():
    async with served(create_app({"m": FakeModel(says("Hello."))})) as url, opened(url) as page:
        await page.get_by_text("What shall we do?").wait_for()
        await page.route("**/v1/**", lambda route: route.abort())
        await page.get_by_role("button", name="Telemetry").click()
        await page.locator("#drawer-body", has_text="Error: The server could not be reached.").wait_for()
        await say(page, "Hello?")
        await page.locator("#problem", has_text="Error: The server could not be reached.").wait_for()
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_have_value("Hello?")


async def test_what_somebody_else_has_written_into_the_browsers_memory_does_no_harm():
    async with served(create_app({"m": FakeModel(says("Hello."))})) as url, opened(url) as page:
        await page.evaluate("localStorage['callsmith.open'] = localStorage['callsmith.settings'] = '{'")
        await page.reload()
        await say(page, "Hello?")
        await page.get_by_text("Hello.").wait_for()
