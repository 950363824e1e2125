"""What a model writes in Markdown, as the page shows it."""

import pytest

from callsmith.server.app import create_app
from tests.browser.pages import expect, opened, say
from tests.fakes import FakeModel
from tests.server.asking import says
from tests.serving import served

pytestmark = pytest.mark.browser


TEXTS = {
    "|a|b|\n|-|-|\n|`x \\| y`|2|": ["table code", "x | y"],
    "Here:\n|a|b|\n|-|-|\n|1|2|": ["table td:nth-child(2)", "2"],
    "[w](https://en.wikipedia.org/wiki/Foo_(bar))": ["a[href$='Foo_(bar)']", "w"],
    "See https://en.wikipedia.org/wiki/Foo_(bar).": ["a[href$='Foo_(bar)']", "https://en.wikipedia.org/wiki/Foo_(bar)"],
    "***both***": ["strong > em", "both"],
}


@pytest.mark.parametrize("text", TEXTS)
async def test_markdown(text: str):
    where, wanted = TEXTS[text]
    async with served(create_app({"m": FakeModel(says(text))})) as url, opened(url) as page:
        await say(page, "Write.")
        await page.get_by_role("button", name="Regenerate").wait_for()
        await expect(page.locator(f".text {where}")).to_have_text(wanted)
