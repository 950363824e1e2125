"""The page in a real browser: Debian's Chromium, driven by Playwright, on a server that says what a test wants."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DRIVER = ROOT / ".venv-browser"
CHROMIUM = os.environ.get("CALLSMITH_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or ""
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
PHONE = {"width": 390, "height": 780}
DESK = {"width": 1280, "height": 820}
WAIT = 60_000  # a machine that is busy takes long to open a page


@asynccontextmanager
async def browser() -> AsyncIterator[Any]:
    """A browser. Skips the test where there is none."""
    if not DRIVER.is_dir() or not CHROMIUM:
        pytest.skip("Chromium, and Playwright in .venv-browser, are needed: make test-browser")
    if str(DRIVER) not in sys.path:
        sys.path.append(str(DRIVER))
    from playwright.async_api import async_playwright  # pyright: ignore[reportMissingImports]

    async with async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            await chromium.close()


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[Any]:
    """The page at an address, in a window of its own. Whatever the console complains about fails the test."""
    async with browser() as chromium:
        context = await chromium.new_context(**{"viewport": DESK, **options})
        context.set_default_timeout(WAIT)
        page = await context.new_page()
        complaints = watch(page)
        await page.goto(url)
        yield page
        assert not complaints


def expect(what: Any) -> Any:
    """Playwright's assertions, which wait: what a click leads to is on the page some time after it, and not at once."""
    from playwright.async_api import expect  # pyright: ignore[reportMissingImports]

    expect.set_options(timeout=WAIT)
    return expect(what)


def watch(page: Any) -> list[str]:
    """What the console of a page complains about, from now on. A refused request is one: its status is the test's matter."""
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))

    def on_console(message: Any) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            complaints.append(message.text)

    page.on("console", on_console)
    return complaints


async def say(page: Any, text: str) -> None:
    """Write a message and send it."""
    await page.get_by_role("textbox", name="Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


async def two_conversations(page: Any) -> None:
    """One after the other, each with an answer."""
    for message in ("First.", "Second."):
        await page.keyboard.press("Control+k")
        await say(page, message)
        await page.get_by_role("button", name="Regenerate").wait_for()


async def slow_down(page: Any, pattern: str, method: str) -> None:
    """Requests of this kind reach the server late from now on."""

    async def late(route: Any) -> None:
        if route.request.method == method:
            await asyncio.sleep(1.0)
        await route.continue_()

    await page.route(pattern, late)


async def lose_one(page: Any, pattern: str) -> list[str]:
    """The next request of this kind does not reach the server; it is in the list then."""
    lost: list[str] = []

    async def lose(route: Any) -> None:
        if lost:
            return await route.continue_()
        lost.append(route.request.url)
        return await route.abort()

    await page.route(pattern, lose)
    return lost


async def violations(page: Any) -> list[str]:
    """What axe finds wrong for people who see, hear or move otherwise."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: make test-browser")
    await page.evaluate(AXE.read_text())  # by the debugger, for which the page's policy does not count
    results = await page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(found => found.violations)")
    return [f"{item['id']}: {node['html'][:200]} {node['failureSummary'][:300]}" for item in results for node in item["nodes"]]
