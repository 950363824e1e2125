"""The API of the server, shown at `/docs`."""

import pytest

from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Settings
from tests.browser.pages import PHONE, opened, violations
from tests.fakes import FakeModel
from tests.server.asking import says
from tests.serving import served

pytestmark = pytest.mark.browser


async def test_every_operation_is_shown_and_found_by_its_words():
    app = create_app({"m": FakeModel(says("hi"))})
    async with served(app) as url, opened(f"{url}/docs") as page:
        await page.locator(".operation").first.wait_for()
        everything = await page.locator(".operation").count()
        assert everything > 50
        await page.get_by_role("searchbox").fill("chat/completions")
        await page.wait_for_function("document.getElementById('found').textContent.startsWith('2 of')")
        await page.locator("#post_v1_chat_completions > summary").click()
        operation = page.locator("#post_v1_chat_completions")
        await operation.get_by_text("tool_choice_policy", exact=True).wait_for()
        assert f"curl {url}/v1/chat/completions" in await operation.locator("pre").inner_text()
        await operation.locator("details > summary", has_text="messages").first.click()
        await operation.get_by_text("tool_call_id", exact=True).first.wait_for()
        assert not await violations(page)


async def test_a_server_with_keys_asks_for_one_and_a_phone_shows_it_all():
    app = create_app({"m": FakeModel(says("hi"))}, settings=Settings(keys={"ada": Key(hash_key("secret"))}))
    async with served(app) as url, opened(f"{url}/docs", viewport=PHONE) as page:
        await page.get_by_label("Key", exact=True).fill("secret")
        await page.get_by_role("button", name="Open").click()
        await page.locator("#post_v1_messages > summary").click()
        await page.locator("#post_v1_messages").get_by_text("max_tokens", exact=True).first.wait_for()
        assert "$KEY" in await page.locator("#post_v1_messages pre").inner_text()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
