"""The page of a server that was given no tools: it offers some of its own, says so, and the first suggestion calls one."""

import pytest

from callsmith import open_model
from callsmith.core.values import Call
from callsmith.models.weights.fetch import fetch
from callsmith.server.app import create_app
from callsmith.tools.functions import Functions
from tests.browser.pages import expect, opened, say, violations
from tests.fakes import FakeModel
from tests.server.asking import calls, says, weather
from tests.serving import served

pytestmark = pytest.mark.browser

SUM = Call("calculate", {"expression": "23 * 47 + 5"}, "c1")


async def test_the_first_suggestion_calls_the_calculator_and_is_answered_with_what_it_computes():
    model = FakeModel(calls(SUM), says("It is 1086."))
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await page.get_by_text("a clock, a calculator and a unit converter").wait_for()
        assert "reach nothing" in await page.locator("#empty .hint").inner_text()
        assert await violations(page) == []
        first = page.locator(".try").first
        assert SUM.arguments["expression"] in await first.inner_text()
        await first.click()
        await page.get_by_text("It is 1086.").wait_for()
        call = page.locator(".call.done", has_text="calculate")
        await expect(call.locator("summary")).to_contain_text('"23 * 47 + 5"')
        await call.locator("summary").click()
        await call.get_by_text("1086", exact=True).wait_for()
        assert [tool.name for tool in model.asked[0].tools] == ["current_time", "calculate", "convert_units"]
        await page.reload()
        await page.locator(".call.done", has_text="calculate").wait_for()


async def test_they_are_called_by_hand_and_switched_off_like_others():
    model = FakeModel(says("Hi."))
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await page.get_by_role("button", name="Tools", exact=True).click()
        await page.locator("#drawer").get_by_text("reach nothing").wait_for()
        converter = page.locator(".tool").filter(has_text="convert_units")
        await converter.locator("summary").click()
        await converter.get_by_label("amount").fill("26.2")
        await converter.get_by_label("from_unit").fill("miles")
        await converter.get_by_label("to_unit").fill("km")
        await converter.get_by_role("button", name="Call it").click()
        await converter.get_by_text("26.2 mi = 42.1648128 km").wait_for()
        await page.get_by_label("Offer convert_units").uncheck()
        await page.get_by_role("button", name="Close").click()
        await say(page, "Hello.")
        await page.get_by_text("Hi.").first.wait_for()
        assert [tool.name for tool in model.asked[0].tools] == ["current_time", "calculate"]


async def test_where_tools_were_given_they_are_not_offered_and_a_suggestion_waits_to_be_sent():
    model = FakeModel(says("Hi."))
    async with served(create_app({"m": model}, tools=Functions(weather))) as url, opened(url) as page:
        await page.get_by_text("The model can call weather.").wait_for()
        await page.locator(".try").first.click()
        assert model.asked == []
        await page.keyboard.press("Enter")
        await page.get_by_text("Hi.").wait_for()
        assert [tool.name for tool in model.asked[0].tools] == ["weather"]


@pytest.mark.slow
async def test_the_default_model_calls_one_rightly_where_the_first_suggestion_is_clicked():
    fetch("qwen2.5-coder-1.5b")
    model = open_model("qwen2.5-coder-1.5b")
    try:
        async with served(create_app({"default": model})) as url, opened(url) as page:
            await page.get_by_text("a clock, a calculator and a unit converter").wait_for()
            await page.locator(".try").first.click()
            await page.locator(".summary").wait_for(timeout=600_000)
            await expect(page.locator(".call.done", has_text="calculate")).to_have_count(1)
            assert "1086" in (await page.locator(".blocks .text").last.inner_text()).replace(",", "")
    finally:
        await model.close()
