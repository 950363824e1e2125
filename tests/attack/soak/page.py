"""A person at the page, in Chromium: writes, allows calls, reloads, and loses the connection in the middle of answers."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from tests.attack.soak.ledger import Ledger, new_token
from tests.attack.soak.server import Server
from tests.browser.pages import CHROMIUM, DESK, DRIVER, browser, say

PAUSE = 1.0
_PATIENCE = 30_000  # milliseconds until something has to be shown
_LONGEST = 120.0  # seconds until an answer has come to its end, whatever is done to the server meanwhile
_CALM = 30.0  # seconds after something was done to the server in which the page may be busy with it
_TURNS = 12  # of a conversation, before another one begins


def why_not() -> str:
    """Why the page is left out; empty where it is not."""
    return (
        "" if DRIVER.is_dir() and CHROMIUM else "Chromium, and Playwright in .venv-browser, are not installed: make test-browser"
    )


class Line:
    """The line between the page and its server, which can be cut."""

    def __init__(self, port: int) -> None:
        self._port, self._is_cut = port, False
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Line"]:
        listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            listening.close()

    async def cut(self, seconds: float) -> None:
        """Cut everybody off, and let nobody through for a while."""
        self._is_cut = True
        for writer in [*self._writers]:
            writer.transport.abort()
        await asyncio.sleep(seconds)
        self._is_cut = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            return writer.transport.abort()
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return writer.transport.abort()
        self._writers |= {writer, to_server}
        try:
            await asyncio.gather(_pass_on(reader, to_server), _pass_on(from_server, writer))
        finally:
            self._writers -= {writer, to_server}


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()


class Failed(Exception):
    """The page says that an answer failed: it may be asked for again."""


class Visitor:
    """A person at the page of one server. What the page has shown as complete goes into the ledger."""

    def __init__(self, page: Any, line: Line, server: Server, ledger: Ledger, until: float) -> None:
        self._page, self._line, self._server, self._ledger, self._until = page, line, server, ledger, until
        self._random = random.Random(17)

    async def run(self) -> None:
        kinds: list[Callable[[], Awaitable[None]]] = [self.write, self.allow, self.refuse, self.reload, self.lose_the_connection]
        turns = 0
        await self._anew()
        while time.monotonic() < self._until:
            kind, turns = self._random.choice(kinds), turns + 1
            name = f"page: {kind.__name__.replace('_', ' ')}"
            began = time.monotonic()
            try:
                await kind()
                self._ledger.done[name] += 1
            except Failed as error:
                self._ledger.retried[f"{name}: {str(error)[:90]}"] += 1
                await self._anew()
            except Exception as error:  # whatever Playwright raises
                await self._stuck(name, error, began)
                await self._anew()
            if turns % _TURNS == 0:
                await self._anew()
            await asyncio.sleep(PAUSE)

    async def write(self) -> None:
        await self._whole(self._words())

    async def reload(self) -> None:
        async def reload() -> None:
            await self._page.reload()

        await self._whole(self._words(), reload)

    async def lose_the_connection(self) -> None:
        await self._whole(self._words(), lambda: self._line.cut(self._random.uniform(0.2, 2.5)))

    async def allow(self) -> None:
        token, turn = await self._call("Allow")
        await self._ended(turn, again="Allow")
        if f"paid {token}" in await self._text(turn):
            self._ledger.doubtful.pop(token, None)
            self._ledger.approved.add(token)

    async def refuse(self) -> None:
        token, turn = await self._call("Deny")
        await turn.get_by_label("Reason for the denial").fill("no")
        await self._page.keyboard.press("Enter")
        await self._ended(turn, again="Deny")
        self._ledger.denied.add(token)

    async def _call(self, button: str) -> tuple[str, Any]:
        token = new_token()
        said = f"do pay {json.dumps({'reference': token})}"
        turn = await self._say(said, token)
        place = turn.get_by_role("button", name=button, exact=True)
        await place.or_(turn.locator(".notice.failed")).first.wait_for(timeout=_PATIENCE)
        if not await place.count():
            await self._ended(turn)
            raise Failed("no question")
        if button == "Allow":
            self._ledger.doubtful[token] = ""
        await place.click()
        return token, turn

    async def _whole(self, said: str, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        """Say something, and see that all of it comes back, whatever happens meanwhile."""
        token = said.split()[2]
        turn = await self._say(said, token)
        if meanwhile is not None:
            await (
                turn.locator(".answer .text", has_text=token)
                .or_(turn.locator(".notice.failed"))
                .first.wait_for(timeout=_PATIENCE)
            )
            await meanwhile()
        await self._ended(turn)
        self._ledger.same(said, await self._text(turn), "the page")
        conversation = (await self._page.evaluate("location.hash")).split("/")[2]
        self._ledger.conversations.setdefault(conversation, []).append(said)

    async def _say(self, said: str, token: str) -> Any:
        await say(self._page, said)
        turn = self._page.locator("article.turn", has_text=token).last
        await turn.or_(self._page.locator("#problem .notice")).first.wait_for(timeout=_PATIENCE)
        if not await turn.count():
            raise Failed(await self._page.locator("#problem").inner_text())
        return turn

    async def _ended(self, turn: Any, again: str = "") -> None:
        """Wait for the end of a turn. Where the card of a call says that the decision did not get through, it is made again."""
        end = turn.locator(".summary").or_(turn.locator(".notice.failed")).or_(self._page.locator("#problem .notice"))
        until, refused = time.monotonic() + _LONGEST, turn.locator(".question .problem", has_text="Error")
        while not await end.count():
            if time.monotonic() > until:
                self._ledger.wrong.append(f"the page: no end of {(await turn.inner_text())[-300:]!r}")
                raise Failed("no end")
            await asyncio.sleep(0.5)
            if again and await refused.count():
                with suppress(Exception):  # it was answered just now
                    await turn.get_by_role("button", name=again, exact=True).click(timeout=5_000)
                await asyncio.sleep(2)
        if await (failed := turn.locator(".notice.failed").or_(self._page.locator("#problem .notice"))).count():
            raise Failed(await failed.first.inner_text())

    async def _text(self, turn: Any) -> str:
        return " ".join(await turn.locator(".answer .text").all_inner_texts())

    def _words(self) -> str:
        return f"slowly say {new_token()} " + " ".join(f"w{number}" for number in range(self._random.randint(10, 40)))

    async def _anew(self) -> None:
        """Open the page, and begin a conversation."""
        while time.monotonic() < self._until:
            try:
                await self._page.goto(self._line.url)
                await self._page.get_by_text("What shall we do?").wait_for()
                return
            except Exception:  # the server is away
                await asyncio.sleep(1)

    async def _stuck(self, name: str, error: Exception, began: float) -> None:
        """The page did not do what it should: that is wrong, unless something was done to its server."""
        shown = ""
        with suppress(Exception):
            shown = (await self._page.locator("#turns").inner_text())[-300:]
        why = f"{name}: {str(error).splitlines()[0][:100]}; it shows {shown!r}"
        if self._server.trouble + _CALM > began or time.monotonic() > self._until:
            self._ledger.retried[f"{name}: hit meanwhile"] += 1
        else:
            self._ledger.wrong.append(why)


@asynccontextmanager
async def visiting(server: Server, ledger: Ledger, until: float) -> AsyncIterator[Visitor]:
    """A visitor in a browser of their own."""
    async with browser() as chromium, Line(server.port).open() as line:
        page = await (await chromium.new_context(viewport=DESK)).new_page()
        page.set_default_timeout(15_000)
        yield Visitor(page, line, server, ledger, until)
