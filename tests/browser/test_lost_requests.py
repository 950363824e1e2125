"""The page when a request is lost, the browser remembers nothing, or the server is another one than before."""

import pytest

from callsmith.core.events import CallArguments, CallReady, CallStarted, Stopped, Text
from callsmith.core.values import Call, Usage
from callsmith.server.app import create_app
from callsmith.server.approvals.elicitations import Elicitations
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Settings
from callsmith.server.store.sqlite import SqliteStore
from callsmith.tools.mcp import McpHost
from callsmith.tools.mcp.elicitation import ClientFeatures
from tests.browser.pages import expect, lose_one, opened, say
from tests.browser.test_chat import MAIL, Mailbox
from tests.browser.test_hard_cases import long_conversation
from tests.fakes import FakeModel
from tests.server.asking import calls, says
from tests.serving import served
from tests.tools.mcp.trying import plain

pytestmark = pytest.mark.browser


async def test_emoji_at_the_end_of_the_title():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        await say(page, "x" * 59 + "😀 and more")
        await expect(page.get_by_text("Hi.", exact=True)).to_be_visible()


async def test_a_model_that_is_gone():
    old = create_app({"old": FakeModel(says("Hi."))})
    async with served(old) as url, opened(url) as page:
        await say(page, "First.")
        await page.get_by_role("button", name="Regenerate").wait_for()
        await page.route("**/v1/models", lambda route: route.fulfill(json={"data": [{"id": "new"}]}))
        await page.reload()
        await page.locator(".bubble", has_text="First.").wait_for()
        await page.wait_for_timeout(300)
        shown = await page.locator("#model").input_value()
        async with page.expect_request("**/v1/responses") as asking:
            await say(page, "Again.")
        assert (await asking.value).post_data_json["model"] == shown


async def test_the_model_shown_is_asked_in_a_new_chat():
    one, two = FakeModel(says("One.")), FakeModel(says("Two."))
    async with served(create_app({"one": one, "two": two})) as url, opened(url) as page:
        await page.get_by_text("What shall we do?").wait_for()
        await say(page, "First.")
        await page.get_by_role("button", name="Regenerate").wait_for()
        await page.locator("#model").select_option("two")
        await page.reload()
        await page.get_by_role("button", name="Regenerate").wait_for()
        await page.evaluate("localStorage.removeItem('callsmith.settings')")
        await page.keyboard.press("Control+k")
        shown = await page.locator("#model").input_value()
        await say(page, "Second.")
        await page.get_by_role("button", name="Regenerate").wait_for()
        assert len((one if shown == "one" else two).asked) == (2 if shown == "one" else 1)


async def test_escape_twice_in_the_key_dialog():
    app = create_app({"m": FakeModel(says("Hello Ada."))}, settings=Settings(keys={"ada": Key(hash_key("sk-ada"))}))
    async with served(app) as url, opened(url) as page:
        await page.get_by_role("textbox", name="Key").wait_for()
        for _ in range(3):
            await page.keyboard.press("Escape")
            await page.wait_for_timeout(200)
        await page.wait_for_timeout(500)
        await expect(page.get_by_role("textbox", name="Key")).to_be_visible()


async def test_a_form_of_an_mcp_server_outlives_a_lost_request():
    store, model = SqliteStore(), FakeModel(calls(Call("elicit", {}, "c1")), says("So."))
    async with McpHost([plain(approval=(("*", "auto"),))], features=ClientFeatures(Elicitations(store, 60).ask)) as host:
        app = create_app({"m": model}, store=store, mcp=host)
        async with served(app) as url, opened(url) as page:
            await say(page, "Ask me.")
            question = page.get_by_role("region", name="plain asks")
            await question.get_by_label("name").fill("Ada")
            lost = await lose_one(page, "**/v1/approvals?*")
            while not lost:
                await page.wait_for_timeout(100)
            await page.wait_for_timeout(3000)
            try:
                await expect(question.get_by_label("name")).to_have_value("Ada")
            finally:
                await page.keyboard.press("Escape")


async def test_whoever_writes_elsewhere_is_not_interrupted_by_a_question():
    box = Mailbox()
    model = FakeModel(
        [
            1.0,
            CallStarted(0, "send_mail", "c1"),
            CallArguments(0, '{"to": '),
            2.0,
            CallArguments(0, '"ada@example.org"}'),
            CallReady(0, MAIL),
            Stopped("calls", Usage(7, 3)),
        ],
        says("It is out."),
    )
    async with served(create_app({"m": model}, tools=box.tools())) as url, opened(url) as page:
        await say(page, "Mail Ada.")
        await page.get_by_role("searchbox").focus()
        await page.keyboard.type("half a wo")
        await page.get_by_role("button", name="Allow").wait_for()
        await page.keyboard.type("rd")
        await expect(page.get_by_role("searchbox")).to_have_value("half a word")


@pytest.mark.parametrize("how", ["denied", "full"])
async def test_without_the_browsers_memory(how: str):
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened("about:blank") as page:
        script = (
            "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('denied', 'SecurityError'); }})"
            if how == "denied"
            else "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }"
        )
        await page.add_init_script(script)
        await page.goto(url)
        await page.wait_for_timeout(1000)
        await say(page, "Hello.")
        await expect(page.get_by_text("Hi.", exact=True)).to_be_visible()
        await page.get_by_role("button", name="Settings of this conversation").click()
        await page.get_by_label("System prompt").fill("Be brief.")
        await page.keyboard.press("Tab")
        await page.wait_for_timeout(500)
        await expect(page.locator("#problem .notice")).to_have_count(0)


async def test_what_a_model_said_before_its_question_is_shown_whole():
    box = Mailbox()
    long = "".join(f"**Step {at}**: `code` and *more* of [it](https://a.b/{at}).\n\n" for at in range(700))
    model = FakeModel(
        [Text(long), 0.02, Text("I shall write to "), 0.02, Text("Eve, not Ada."), *calls(MAIL)], says("It is out.")
    )
    async with served(create_app({"m": model}, tools=box.tools())) as url, opened(url) as page:
        await say(page, "Mail Ada.")
        await page.get_by_role("button", name="Allow").wait_for()
        await page.wait_for_timeout(3000)
        await expect(page.locator(".text")).to_contain_text("Eve, not Ada.")


async def test_stop_that_does_not_reach_the_server_says_so():
    async with served(create_app({"m": FakeModel([Text("So far."), 8.0])})) as url, opened(url) as page:
        await say(page, "Go on.")
        await page.get_by_text("So far.").wait_for()
        await page.route("**/cancel", lambda route: route.abort())
        await page.get_by_role("button", name="Stop").click()
        await page.wait_for_timeout(500)
        await expect(page.get_by_text("could not be reached").and_(page.locator(":not(#status)"))).to_be_visible()


async def test_older_messages_after_a_lost_request():
    async with served(create_app({"m": FakeModel(says("And on."))})) as url:
        id = await long_conversation(url, 400)
        async with opened(f"{url}#/c/{id}") as page:
            await page.get_by_text("Message 399.").wait_for()
            lost = await lose_one(page, "**/items?*after=*")
            while "Message 0." not in await page.locator(".bubble").first.inner_text():
                await page.evaluate("document.getElementById('scroller').scrollTop -= 1500")
                await page.wait_for_timeout(100)
            assert lost


async def test_approval_answered_while_the_connection_is_lost():
    box = Mailbox()
    model = FakeModel(calls(MAIL), says("It is out."))
    async with served(create_app({"m": model}, tools=box.tools())) as url, opened(url) as page:
        await say(page, "Mail Ada.")
        await page.get_by_role("button", name="Allow").wait_for()
        await page.context.set_offline(True)
        await page.get_by_role("button", name="Allow").click()
        await page.get_by_text("Nothing has been decided").wait_for()
        await page.context.set_offline(False)
        await page.get_by_role("button", name="Allow").click()
        await page.get_by_text("It is out.").wait_for()
        assert box.sent == [("ada@example.org", False)]


async def test_copy_that_is_not_allowed():
    async with served(create_app({"m": FakeModel(says("Hi."))})) as url, opened(url) as page:
        await say(page, "Hello.")
        await page.get_by_role("button", name="Regenerate").wait_for()
        await page.evaluate(
            "() => { navigator.clipboard.writeText = async () => { throw new DOMException('no', 'NotAllowedError'); }; }"
        )
        await page.get_by_role("button", name="Copy").click()
        await page.wait_for_timeout(300)
        assert "Reload" not in await page.locator("#problem").inner_text()
