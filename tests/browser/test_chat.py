"""The page in a browser: chats with tools, approvals, reloads, failures, phones, and what a model may try to do to it."""

import asyncio
from typing import Any

import httpx2
import pytest

from callsmith.core.errors import Unavailable
from callsmith.core.events import CallArguments, CallReady, CallStarted, Stopped, Text
from callsmith.core.values import Call, Usage
from callsmith.server.app import create_app
from callsmith.tools.functions import Functions, tool
from tests.browser.pages import PHONE, expect, opened, say, violations
from tests.fakes import FakeModel
from tests.server.asking import BONN, KOELN, calls, says, weather
from tests.serving import served

pytestmark = pytest.mark.browser

MAIL = Call("send_mail", {"to": "ada@example.org", "urgent": False}, "c1")


class Mailbox:
    """Tools that remember what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bool]] = []

    def tools(self) -> Functions:
        @tool(side_effects=True)
        async def send_mail(to: str, urgent: bool = False) -> str:
            """Send a mail."""
            self.sent.append((to, urgent))
            return f"sent to {to}"

        return Functions(send_mail, weather)


def app_of(*answers: Any, **options: Any) -> Any:
    return create_app({"m": FakeModel(*answers)}, **{"tools": Functions(weather), **options})


async def test_a_chat_with_a_tool_shows_the_call_its_result_and_the_answer():
    async with served(app_of(calls(BONN), says("It is ", "**sunny**."))) as url, opened(url) as page:
        await say(page, "How is Bonn?")
        await page.locator("strong", has_text="sunny").wait_for()
        call = page.locator(".call")
        await expect(call).to_have_count(1)
        await expect(call.locator("summary")).to_contain_text('city: "Bonn"')
        assert not await call.get_by_text("sun in Bonn").is_visible()
        await call.locator("summary").click()
        await call.get_by_text("sun in Bonn").wait_for()
        assert await page.title() == "How is Bonn? · callsmith"


async def test_arguments_fill_in_while_the_model_writes_them():
    drafts = [
        CallStarted(0, "weather", "c1"),
        CallArguments(0, '{"city": '),
        3.0,
        CallArguments(0, '"Bonn"}'),
        CallReady(0, BONN),
    ]
    async with served(app_of([*drafts, Stopped("calls", Usage(7, 3))], says("Sun."))) as url, opened(url) as page:
        await say(page, "How is Bonn?")
        call = page.locator(".call.writing")
        await call.wait_for()
        await expect(call.locator(".preview")).to_have_text('{"city":')
        await page.get_by_text("Sun.").wait_for()
        await expect(page.locator(".call")).to_have_count(1)


async def test_two_parallel_calls_stand_side_by_side():
    async with served(app_of(calls(BONN, KOELN), says("Both."))) as url, opened(url) as page:
        await say(page, "Bonn and Köln?")
        await page.get_by_text("Both.").wait_for()
        first, second = [await item.bounding_box() for item in await page.locator(".call").all()]
        assert first["y"] == second["y"] and first["x"] < second["x"]


async def test_an_approval_is_edited_and_allowed():
    box = Mailbox()
    async with served(app_of(calls(MAIL), says("It is out."), tools=box.tools())) as url, opened(url) as page:
        await say(page, "Mail Ada.")
        question = page.get_by_role("region", name="Allow send_mail?")
        await question.get_by_role("button", name="Edit").click()
        await question.get_by_label("to").fill("eve@example.org")
        await question.get_by_label("urgent").check()
        assert box.sent == []
        await question.get_by_role("button", name="Allow").click()
        await page.get_by_text("It is out.").wait_for()
        assert box.sent == [("eve@example.org", True)]


async def test_characters_that_hide_or_reverse_others_are_shown_where_a_person_decides():
    hidden = Call("send_mail", {"to": "ada\u202egro.live\u200b\U000e0041"}, "c1")
    async with served(app_of(calls(hidden), says("So."), tools=Mailbox().tools())) as url, opened(url) as page:
        await say(page, "Mail Ada.")
        text = await page.get_by_role("region", name="Allow send_mail?").locator("pre").inner_text()
        assert "ada\\u{202e}gro.live\\u{200b}\\u{e0041}" in text


async def test_a_denial_and_its_reason_reach_the_model_and_nothing_runs():
    box, model = Mailbox(), FakeModel(calls(MAIL), says("Then not."))
    async with served(create_app({"m": model}, tools=box.tools())) as url, opened(url) as page:
        await say(page, "Mail Ada.")
        await page.get_by_role("button", name="Deny").click()
        await page.get_by_label("Reason for the denial").fill("She is on holiday.")
        await page.keyboard.press("Enter")
        await page.get_by_text("Then not.").wait_for()
        assert box.sent == []
        assert "She is on holiday." in str(model.asked[-1].messages[-1].content)
        await expect(page.locator(".call.denied")).to_have_count(1)
        await page.reload()
        await page.get_by_text("Then not.").wait_for()
        await page.locator(".call.denied").wait_for()


async def test_a_reload_in_the_middle_of_a_turn_loses_nothing():
    slow = [Text("The first half, "), 1.5, *says("and the second.")]
    async with served(app_of(calls(BONN), slow)) as url, opened(url) as page:
        await say(page, "Tell me.")
        await page.get_by_text("The first half").wait_for()
        await page.reload()
        await page.get_by_text("The first half, and the second.").wait_for()
        await expect(page.locator(".bubble")).to_have_text(["Tell me."])
        await expect(page.locator(".call.done")).to_have_count(1)
        await page.reload()
        await page.get_by_text("The first half, and the second.").wait_for()
        await expect(page.locator(".bubble")).to_have_text(["Tell me."])


@pytest.mark.parametrize("is_opened_before", [False, True])
async def test_an_answer_that_ended_while_nobody_looked_stands_there_once(is_opened_before: bool):
    pause = 4.0 if is_opened_before else 0.5
    model = FakeModel([Text("The first half, "), pause, *says("and the second.")], says("On."))
    async with served(create_app({"m": model})) as url, opened(url) as page:
        await say(page, "Tell me.")
        await page.get_by_text("The first half").wait_for()
        conversation = page.url
        await page.goto("about:blank")
        if is_opened_before:  # the page has asked for the conversation when the answer ends, and asks for the answer then

            async def late(route: Any) -> None:
                await _until_ended(model)
                await route.continue_()

            await page.route("**/v1/responses/*", late)
        else:
            await _until_ended(model)
        await page.goto(conversation)
        await page.get_by_text("The first half, and the second.").wait_for()
        await page.locator(".summary").wait_for()
        await say(page, "Go on.")
        await page.get_by_text("On.", exact=True).wait_for()
        await expect(page.locator(".bubble")).to_have_text(["Tell me.", "Go on."])


async def _until_ended(model: FakeModel) -> None:
    while model.open:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)  # it is stored


async def test_a_reload_while_an_approval_waits_asks_again_and_runs_it_once():
    box = Mailbox()
    async with served(app_of(calls(MAIL), says("It is out."), tools=box.tools())) as url, opened(url) as page:
        await say(page, "Mail Ada.")
        await page.get_by_role("button", name="Allow").wait_for()
        await page.reload()
        await page.get_by_role("button", name="Allow").click()
        await page.get_by_text("It is out.").wait_for()
        assert box.sent == [("ada@example.org", False)]


async def test_a_model_that_fails_is_told_of_and_can_be_tried_again():
    async with served(app_of(Unavailable("the engine is out of memory"), says("Now."))) as url, opened(url) as page:
        await say(page, "Hello?")
        await page.locator(".notice", has_text="the engine is out of memory").wait_for()
        await page.get_by_role("button", name="Try again").click()
        await page.get_by_text("Now.").wait_for()
        await expect(page.locator(".bubble")).to_have_text(["Hello?"])


async def test_stop_ends_the_answer_and_what_was_said_stays():
    async with served(app_of([Text("So far."), 60.0])) as url, opened(url) as page:
        await say(page, "Go on and on.")
        await page.get_by_text("So far.").wait_for()
        await page.keyboard.press("Escape")
        await page.get_by_text("Stopped.").wait_for()
        await page.reload()
        await page.get_by_text("So far.").wait_for()


INJECTED = """<script>window.hit = 1</script><img src=x onerror="window.hit = 1"><svg onload="window.hit = 1">

[click](javascript:window.hit=1) ![remote](https://example.org/pixel.png) <iframe src="javascript:parent.hit=1"></iframe>
"""


async def test_html_of_a_model_or_a_tool_is_text_and_nothing_of_it_runs_or_is_fetched():
    @tool
    async def read_page() -> str:
        """Read a page."""
        return INJECTED

    app = app_of(calls(Call("read_page", {}, "c1")), says(INJECTED, "the end"), tools=Functions(read_page))
    async with served(app) as url, opened(url) as page:
        fetched: list[str] = []
        page.on("request", lambda request: fetched.append(request.url))
        await say(page, INJECTED)
        await page.get_by_text("the end").wait_for()
        await page.locator(".call summary").click()
        await page.locator(".call pre").last.wait_for()
        assert await page.evaluate("window.hit") is None
        assert await page.locator("#turns").locator("script, iframe, img, svg[onload]").count() == 0
        assert await page.locator('#turns a[href^="javascript"]').count() == 0
        link = page.get_by_role("link", name="image: remote")
        assert await link.get_attribute("rel") == "noopener noreferrer"
        assert all(item.startswith(url) for item in fetched)


MARKUP = [
    "*",
    "**a",
    "_",
    "[",
    "![",
    "`",
    "<",
    "> ",
    "- ",
    "|-|\n",
    "# ",
    "~~",
    "1. ",
    "```\n",
    "\\",
    "a|b\n-|-\n",
    "[a](",
    "https://",
]


async def test_no_markup_whatever_keeps_the_page_busy_or_gets_lost():
    async with served(app_of(says("hi"))) as url, opened(url) as page:
        await page.get_by_text("What shall we do?").wait_for()
        for text in MARKUP:
            rendered = await page.evaluate(MADE_OF, text * 20_000 + "\n\nthe end")
            assert "the end" in rendered


MADE_OF = """async (text) => {
  const { markdown } = await import("/page/markdown.js");
  const place = document.createElement("div");
  place.append(...markdown(text));
  return place.textContent;
}"""


async def test_a_reload_before_the_first_word_loses_nothing_and_stop_works_then():
    async with served(app_of([3.0, *says("At last.")], [60.0])) as url, opened(url) as page:
        await say(page, "Slowly.")
        await _until_it_is_known(page)
        await page.reload()
        await page.get_by_text("At last.").wait_for()
        await expect(page.locator(".bubble")).to_have_text(["Slowly."])
        await page.locator(".summary").wait_for()
        await say(page, "Again.")
        await _until_it_is_known(page)
        await page.keyboard.press("Escape")
        await page.get_by_text("Stopped.").wait_for()


async def _until_it_is_known(page: Any) -> None:
    """Until the page knows the id of the answer being given."""
    while not await page.evaluate("localStorage['callsmith.open']?.includes('resp_')"):
        await asyncio.sleep(0.05)


async def test_a_second_tab_that_answers_an_approval_too_late_is_told_and_the_call_runs_once():
    box = Mailbox()
    async with served(app_of(calls(MAIL), says("It is out."), tools=box.tools())) as url, opened(url) as page:
        await say(page, "Mail Ada.")
        await page.get_by_role("button", name="Allow").wait_for()
        other = await page.context.new_page()
        frames = await _frames_so_far(page, url)
        cut_off = [lambda route: route.abort()]  # it does not hear what the first one answers
        await other.route(
            "**/v1/responses/*stream=true*", lambda route: (cut_off.pop() if len(cut_off) > 1 else cut_off[0])(route)
        )
        cut_off.append(lambda route: route.fulfill(body=frames, content_type="text/event-stream"))
        await other.goto(page.url)
        await other.get_by_role("button", name="Deny").click()
        await page.get_by_role("button", name="Allow").click()
        await page.get_by_text("It is out.").wait_for()
        await other.keyboard.press("Enter")
        await other.get_by_text("Somebody else has answered this already: allowed").wait_for()
        assert box.sent == [("ada@example.org", False)]


async def _frames_so_far(page: Any, url: str) -> bytes:
    """What the stream of the page's answer has brought up to its question."""
    open_id = await page.evaluate("Object.values(JSON.parse(localStorage['callsmith.open']))[0].id")
    frames = b""
    async with (
        httpx2.AsyncClient(base_url=url) as asking,
        asking.stream("GET", f"/v1/responses/{open_id}?stream=true") as response,
    ):
        async for piece in response.aiter_bytes():
            frames += piece
            if b"confirmation_needed" in frames:
                break
    return frames


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["desk", "phone"])
async def test_nobody_is_kept_out(scheme: str, size: str):
    box = Mailbox()
    answers = (
        calls(BONN, KOELN),
        says("# Hi\n\n- a `b` [c](https://example.org)\n\n```py\nx\n```\n\n|a|b|\n|-|-|\n|1|2|"),
        calls(MAIL),
    )
    options: Any = {"color_scheme": scheme, **({"viewport": PHONE, "has_touch": True} if size == "phone" else {})}
    async with served(app_of(*answers, tools=box.tools())) as url, opened(url, **options) as page:
        await page.get_by_text("What shall we do?").wait_for()
        assert await violations(page) == []
        await say(page, "Bonn and Köln?")
        await page.get_by_role("table").wait_for()
        await page.locator(".call summary").first.click()
        await say(page, "Mail Ada.")
        await page.locator(".question").get_by_role("button", name="Edit").click()
        assert await violations(page) == []
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= page.viewport_size["width"]
