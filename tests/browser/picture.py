"""The picture of the page in the documentation: a chat with two calls side by side, and a third that waits for approval.

python -m tests.browser.picture docs/images/page.png        # after make test-browser, which installs what it needs
"""

import asyncio
import sys
from tempfile import TemporaryDirectory

from callsmith.core.values import Call
from callsmith.server.app import create_app
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.functions import Functions, tool
from tests.browser.pages import opened, say
from tests.fakes import FakeModel
from tests.server.asking import calls, says
from tests.serving import served

MODEL = "qwen2.5-coder-1.5b"
SIZE = {"width": 1100, "height": 720}
MESSAGE = {"to": "Ada", "text": "Sun in Bonn and Köln today. Shall we meet outside?"}


@tool
async def get_weather(city: str) -> str:
    """The weather in a city."""
    await asyncio.sleep({"Bonn": 0.4, "Köln": 0.7}[city])
    return f"sunny, 21 °C in {city}"


@tool(side_effects=True)
async def send_message(to: str, text: str) -> str:
    """Send somebody a message."""
    return f"sent to {to}"


async def take_picture(path: str) -> None:
    """Have the chat, and save what is seen of it."""
    model = FakeModel(
        calls(Call("get_weather", {"city": "Bonn"}, "c1"), Call("get_weather", {"city": "Köln"}, "c2")),
        says("Both are **sunny**: 21 °C in Bonn and in Köln. A good day to meet outside."),
        calls(Call("send_message", MESSAGE, "c3")),
    )
    with TemporaryDirectory() as folder:
        store = SqliteStore(f"{folder}/store.db")
        app = create_app({MODEL: model}, tools=Functions(get_weather, send_message), store=store)
        async with served(app) as url, opened(url, viewport=SIZE, color_scheme="light") as page:
            await say(page, "How is the weather in Bonn and Köln?")
            await page.locator("strong", has_text="sunny").wait_for()
            await say(page, "Tell Ada, and ask whether we meet outside.")
            await page.get_by_role("region", name="Allow send_message?").wait_for()
            await page.get_by_role("textbox", name="Message", exact=True).blur()
            await asyncio.sleep(1)  # what moves has come to rest
            await page.screenshot(path=path)


if __name__ == "__main__":
    asyncio.run(take_picture(sys.argv[1]))
