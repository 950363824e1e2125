"""What is beside the chat: tools, forms, what MCP servers ask, settings, details of a turn, telemetry."""

import asyncio
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from callsmith import open_model
from callsmith.cli.inputs.demo_tools import TOOLS
from callsmith.core.types.model_step import CallDecision
from callsmith.core.values import Call
from callsmith.models.weights.fetch import fetch
from callsmith.server.app import create_app
from callsmith.server.approvals.elicitations import Elicitations
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.functions import Functions, tool
from callsmith.tools.mcp import McpHost
from callsmith.tools.mcp.elicitation import ClientFeatures
from tests.browser.pages import PHONE, expect, opened, say, violations
from tests.fakes import FakeModel, decided
from tests.server.asking import BONN, calls, says, weather
from tests.serving import served
from tests.tools.mcp.trying import plain

pytestmark = pytest.mark.browser


class Address(BaseModel):
    street: str
    zip: int = Field(ge=1000, le=99999, description="Four or five digits")


ORDER = Call("order", {"item": "anvil", "count": 2, "address": {"street": "Forge Lane 1", "zip": 5000}, "notes": ["fast"]}, "c1")


def shop(ordered: list[Any]) -> Functions:
    @tool(side_effects=True)
    async def order(
        item: Literal["anvil", "hammer"],
        count: int,
        address: Address,
        notes: list[str] | None = None,
        gift: bool = False,
    ) -> str:
        """Order something."""
        ordered.append((item, count, address.street, address.zip, notes, gift))
        return "ordered"

    return Functions(weather, order)


async def test_arguments_with_objects_lists_and_choices_are_edited_in_a_form():
    ordered: list[Any] = []
    app = create_app({"m": FakeModel(calls(ORDER), says("Ordered."))}, tools=shop(ordered))
    async with served(app) as url, opened(url) as page:
        await say(page, "Two anvils.")
        question = page.get_by_role("region", name="Allow order?")
        await question.get_by_role("button", name="Edit").click()
        await question.get_by_label("item").select_option("hammer")
        await question.get_by_label("count").fill("3")
        await question.get_by_label("street").fill("Anvil Road 2")
        await question.get_by_role("button", name="Add").click()
        await question.get_by_label("notes 2").fill("at night")
        await question.get_by_label("gift").check()
        await question.get_by_label("zip").fill("")
        await question.get_by_role("button", name="Allow").click()
        await question.get_by_text("zip: is required").wait_for()
        assert ordered == []
        await question.get_by_label("zip").fill("12345")
        await question.get_by_role("button", name="As JSON").click()
        await question.get_by_role("button", name="As a form").click()
        await question.get_by_role("button", name="Allow").click()
        await page.get_by_text("Ordered.").wait_for()
        assert ordered == [("hammer", 3, "Anvil Road 2", 12345, ["fast", "at night"], True)]


async def test_what_is_allowed_from_now_on_is_not_asked_again_in_the_conversation():
    ordered: list[Any] = []
    model = FakeModel(calls(ORDER), says("One."), calls(Call("order", dict(ORDER.arguments), "c2")), says("Two."))
    async with served(create_app({"m": model}, tools=shop(ordered))) as url, opened(url) as page:
        await say(page, "An order.")
        await page.get_by_label("Allow order in this conversation from now on").check()
        await page.get_by_role("button", name="Allow").click()
        await page.get_by_text("One.").wait_for()
        await say(page, "Another.")
        await page.get_by_text("Two.").wait_for()
        assert len(ordered) == 2


async def test_a_tool_is_called_by_hand_and_asks_first_where_it_changes_things():
    ordered: list[Any] = []
    async with served(create_app({"m": FakeModel(says("hi"))}, tools=shop(ordered))) as url, opened(url) as page:
        await page.get_by_role("button", name="Tools", exact=True).click()
        tools = page.locator(".tool")
        await tools.filter(has_text="weather").locator("summary").click()
        await tools.filter(has_text="weather").get_by_label("city").fill("Bonn")
        await tools.filter(has_text="weather").get_by_role("button", name="Call it").click()
        await page.get_by_text("sun in Bonn").wait_for()
        order = tools.filter(has_text="asks first")
        await order.locator("summary").click()
        await order.get_by_role("button", name="As JSON").wait_for()
        await order.get_by_label("item").select_option("anvil")
        await order.get_by_label("count").fill("1")
        await order.get_by_label("street").fill("A")
        await order.get_by_label("zip").fill("1234")
        await order.get_by_role("button", name="Call it").click()
        await order.get_by_text("needs approval").wait_for()
        assert ordered == []
        assert await violations(page) == []
        await order.get_by_role("button", name="Run it all the same").click()
        await order.get_by_text("Done").wait_for()
        assert len(ordered) == 1


async def test_a_tool_that_is_switched_off_is_not_offered_in_this_conversation_and_only_in_this():
    model = FakeModel(says("Hi."))
    async with served(create_app({"m": model}, tools=shop([]))) as url, opened(url) as page:
        await page.get_by_role("button", name="Tools", exact=True).click()
        await page.get_by_label("Offer order").uncheck()
        await page.get_by_role("button", name="Settings of this conversation").click()
        await page.get_by_label("System prompt").fill("Be brief.")
        await page.get_by_label("Temperature").fill("0.3")
        await page.get_by_role("button", name="Close").click()
        await say(page, "Hello.")
        await page.get_by_text("Hi.").first.wait_for()
        await page.reload()
        await page.get_by_text("Hi.").first.wait_for()
        await say(page, "Again.")
        await page.get_by_text("Hi.").nth(1).wait_for()
        for request in model.asked:
            assert [listed_tool.name for listed_tool in request.tools] == ["weather"]
            assert (request.messages[0].content, request.sampling.temperature) == ("Be brief.", 0.3)
        await page.keyboard.press("Control+k")
        await say(page, "Anew.")
        await page.locator(".bubble", has_text="Anew.").wait_for()
        await page.get_by_text("Hi.").wait_for()
        assert [listed_tool.name for listed_tool in model.asked[-1].tools] == ["weather", "order"]


async def test_what_an_mcp_server_asks_in_the_middle_of_a_call_is_a_form():
    store, model = SqliteStore(), FakeModel(calls(Call("elicit", {}, "c1")), says("So."))
    async with McpHost([plain(approval=(("*", "auto"),))], features=ClientFeatures(Elicitations(store, 60).ask)) as host:
        app = create_app({"m": model}, store=store, mcp=host)
        async with served(app) as url, opened(url) as page:
            await say(page, "Ask me.")
            question = page.get_by_role("region", name="plain asks")
            await question.get_by_text("Who?").wait_for()
            await question.get_by_label("name").fill("Ada")
            assert await violations(page) == []
            await question.get_by_role("button", name="Send").click()
            await page.get_by_text("So.").wait_for()
            await page.get_by_role("button", name="Tools", exact=True).click()
            await page.locator(".server.ready", has_text="plain").wait_for()
    assert '"content": {"name": "Ada", "size": 7}' in str(model.asked[1].messages[-1].content)


async def test_the_details_of_a_turn_have_prompt_text_and_frames():
    app = create_app({"m": open_model("scripted:It is sunny.")}, tools=Functions(weather))
    async with served(app) as url, opened(url) as page:
        await say(page, "How is Bonn?")
        await page.get_by_text("It is sunny.").wait_for()
        await page.get_by_role("button", name="Details").click()
        await page.get_by_text("Exact prompt").click()
        await page.locator("#drawer pre", has_text="How is Bonn?").first.wait_for()
        await page.get_by_text("What the model wrote").click()
        await page.get_by_text("Raw frames").click()
        await page.locator("#drawer pre", has_text="response.completed").first.wait_for()
        assert await violations(page) == []


async def test_the_details_of_a_turn_say_whether_tools_were_called_and_why():
    model = FakeModel(decided("It is sunny.", CallDecision(False, -2.126, -1.5)))
    async with served(create_app({"m": model}, tools=Functions(weather))) as url, opened(url) as page:
        await say(page, "How is Bonn?")
        await page.get_by_text("It is sunny.").wait_for()
        await page.get_by_role("button", name="Details").click()
        await page.get_by_text("called no tools: score -2.13, threshold -1.5").wait_for()


async def test_who_begins_to_chat_before_all_is_loaded_is_not_interrupted():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened("about:blank") as page:

        async def late(route: Any) -> None:
            await asyncio.sleep(1.5)
            await route.continue_()

        await page.route("**/health", late)
        await page.goto(url)
        await page.locator("#model option").wait_for(state="attached")
        await say(page, "Hello.")
        await page.get_by_text("Hi.").wait_for()
        await page.get_by_text("Stored in memory").wait_for()
        await page.wait_for_timeout(500)
        await expect(page.get_by_role("button", name="Details")).to_have_count(1)


async def test_telemetry_is_drawn():
    app = create_app({"m": FakeModel(calls(BONN), says("Sun."))}, tools=Functions(weather))
    async with served(app) as url, opened(url) as page:
        await say(page, "How is Bonn?")
        await page.get_by_text("Sun.").wait_for()
        await page.get_by_role("button", name="Telemetry").click()
        await page.get_by_role("img", name="weather: 1 calls, 0 failed, 0 invalid").wait_for()
        await page.locator("#drawer svg.plot polyline").nth(2).wait_for(state="attached")
        assert await violations(page) == []


async def test_conversations_are_listed_reopened_and_deleted():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        await page.get_by_text("Stored in memory: gone when the server ends.").wait_for()
        for message in ("First.", "Second."):
            await page.keyboard.press("Control+k")
            await say(page, message)
            await page.get_by_text("Hi.").wait_for()
        await page.reload()
        rows = page.locator("#conversations a")
        await rows.nth(1).wait_for()
        await expect(rows).to_have_text(["Second.", "First."])
        await rows.nth(1).click()
        await page.locator(".bubble", has_text="First.").wait_for()
        await expect(page.get_by_role("heading", level=1)).to_have_text("First.")
        page.on("dialog", lambda dialog: dialog.accept())
        await page.get_by_role("button", name='Delete "First."').click()
        await page.get_by_text("What shall we do?").wait_for()
        await expect(rows).to_have_text(["Second."])


async def test_on_a_phone_the_list_makes_room_for_a_new_chat_and_for_what_is_said_of_a_conversation_that_is_gone():
    async with (
        served(create_app({"m": FakeModel(says("Hi."))})) as url,
        opened(url, viewport=PHONE, has_touch=True, is_mobile=True) as page,
    ):
        await say(page, "First.")
        await page.get_by_text("Hi.").wait_for()
        await page.get_by_role("button", name="Conversations").tap()
        await page.get_by_role("searchbox").tap()
        await page.get_by_role("button", name="New chat").tap()
        await page.get_by_role("searchbox").wait_for(state="hidden")
        await page.get_by_text("What shall we do?").tap()
        await page.get_by_role("button", name="Conversations").tap()
        await page.get_by_role("searchbox").tap()
        await page.evaluate("location.hash = '#/c/conv_gone'")
        await page.get_by_role("searchbox").wait_for(state="hidden")
        await page.get_by_text("Error: This conversation is not here.").tap()


@pytest.mark.slow
async def test_the_default_model_uses_a_tool_and_answers_on_the_page():
    fetch("qwen2.5-coder-1.5b")
    model = open_model("qwen2.5-coder-1.5b")
    try:
        app = create_app({"default": model}, tools=Functions(*TOOLS))
        async with served(app) as url, opened(url) as page:
            await say(page, "Calculate 23 times 19.")
            await page.locator(".summary").wait_for(timeout=600_000)
            assert await page.locator(".call.done", has_text="calculate").count() >= 1
            assert "437" in await page.locator(".blocks .text").last.inner_text()
    finally:
        await model.close()
