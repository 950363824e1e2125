"""What a model or a tool writes does not freeze the page, however it is made: each text is shown within a second or two."""

import asyncio
import json
from typing import Any

import pytest

from callsmith.core.values import Call
from callsmith.server.app import create_app
from callsmith.tools.functions import Functions, tool
from tests.browser.pages import expect, opened, say
from tests.fakes import FakeModel
from tests.server.asking import calls, says
from tests.serving import served

pytestmark = pytest.mark.browser

SECONDS = 4.0  # on a machine that has other things to do; unbounded, each of these takes many times as long, or for ever
TEXTS = {
    "a wide table": "|" + "a|" * 1000 + "\n|" + "-|" * 1000 + "\n" + "|\n" * 1000,
    "a line of dashes under a pipe": "a|b\n" + "|-" + "-" * 200_000 + "x",
    "many tables": "|a|b|\n|-|-|\n|c|d|\n\n" * 20_000,
    "links that do not end": "[a](" * 2000,
    "images that do not end": "![a](" * 1600,
    "brackets": "[" * 7900 + "\n\n" + "[" * 7900,
    "emphasis that does not end": ("**a *a __a _a ~~a " * 400 + "\n\n") * 100,
    "emphasis in emphasis": "*a **b " * 1000 + "** *" * 1000,
    "code that does not end": ("`a ``b ```c " * 600 + "\n\n") * 60,
    "underscores": ("_" * 7900 + "\n\n") * 60,
    "a heading of spaces": "# a" + " " * 5000 + "a",
    "a heading of hashes": "# " + "#" * 200_000 + "a",
    "quotes in quotes": (">" * 200 + " a\n") * 2000,
    "lists in lists": "".join("  " * (at % 40) + "- a\n" for at in range(20_000)),
    "many paragraphs": "a\n\n" * 200_000,
    "many links": "[a](https://b.c) " * 400 + "\n\n" + ("[a](https://b.c) " * 400 + "\n\n") * 100,
    "many fences": "```\na\n```\n" * 20_000,
    "a long line": "word " * 400_000,
    "a long word": "x" * 2_000_000,
    "line ends of others": "\r" * 500_000,
    "a long address": "https://a.b/" + "x(" * 250_000 + " [a](https://a.b/" + "x(" * 250_000,
    "brackets in addresses": ("https://a.b/" + "(" * 1900 + "\n\n") * 100 + ("[a](https://a.b/" + "(x)" * 600 + "\n\n") * 100,
    "tables of escaped pipes": ("|" + "\\|" * 900 + "|\n|-|\n\n") * 100,
    "breaks": ("a  \n" * 1900 + "\n") * 100,
}
SHOWN = """async (text) => {
  const { markdown } = await import("/page/markdown.js");
  const element = document.createElement("div");
  element.className = "text";
  const began = performance.now();
  element.append(...markdown(text));
  document.body.append(element);
  element.getBoundingClientRect();
  const took = performance.now() - began;
  element.remove();
  return took / 1000;
}"""


@pytest.mark.parametrize("name", TEXTS)
async def test_an_answer_is_shown_at_once_however_it_is_made(name: str) -> None:
    async with served(create_app({"m": FakeModel(says("Hello."))})) as url, opened(url) as page:
        took = await asyncio.wait_for(page.evaluate(SHOWN, TEXTS[name]), 20)
    assert took < SECONDS


async def test_what_is_not_made_of_an_answer_any_more_is_there_as_it_was_written() -> None:
    text = "**bold** " * 30_000 + "\n\n" + "- *item*\n" * 30_000 + "\nThe end."
    async with served(create_app({"m": FakeModel(says(text))})) as url, opened(url) as page:
        await say(page, "Write much.")
        await page.get_by_role("button", name="Show all").last.click()
        await page.get_by_text("The end.").wait_for()
        assert "- *item*" in await page.locator(".text").inner_text()


async def test_a_table_with_rows_that_are_too_short_or_too_long_is_a_table() -> None:
    table = "|a|b|c|\n|-|-|-|\n|1|2|3|\n|4|\n|5|6|7|8|\n"
    async with served(create_app({"m": FakeModel(says(table))})) as url, opened(url) as page:
        await say(page, "A table.")
        await page.locator("td", has_text="7").wait_for()
        rows = await page.locator("tbody tr").all_inner_texts()
    assert [row.split() for row in rows] == [["1", "2", "3"], ["4"], ["5", "6", "7"]]


RESULTS: dict[str, Any] = {
    "a million characters": "x" * 1_000_000,
    "brackets in brackets": "[" * 20_000 + "]" * 20_000,
    "objects in objects": '{"a":' * 20_000 + "1" + "}" * 20_000,
    "many values": json.dumps(list(range(100_000))),
    "many keys": json.dumps({f"key{at}": at for at in range(30_000)}),
    "quotes": '"' * 100_000,
    "characters nobody sees": "\u200b\u202e" * 100_000,
}


@pytest.mark.parametrize("name", RESULTS)
async def test_a_result_is_shown_at_once_however_it_is_made(name: str) -> None:
    long_name = "look_\u202e" + "x" * 100_000

    @tool
    async def dump() -> str:
        """Everything."""
        return RESULTS[name]

    model = FakeModel(calls(Call("dump", {}, "c1"), Call(long_name, {"deep": "x"}, "c2")), says("That was much."))
    async with served(create_app({"m": model}, tools=Functions(dump))) as url, opened(url) as page:
        await say(page, "Dump it.")
        await page.get_by_text("That was much.").wait_for()
        began = asyncio.get_running_loop().time()
        await page.locator(".call summary").first.click()
        shown = page.locator(".call pre").last
        await expect(shown).not_to_be_empty()
        await expect(shown).to_be_visible()
        assert len(await shown.inner_text()) <= 6_100
        assert asyncio.get_running_loop().time() - began < SECONDS
        for summary in await page.locator(".call summary").all_inner_texts():
            assert len(summary) < 600
            assert "\u202e" not in summary


async def test_a_description_of_a_megabyte_and_with_hidden_text_is_shown_in_part() -> None:
    async def look() -> str:
        return "x"

    look.__doc__ = "Look.\u202e" + "x " * 500_000
    async with served(create_app({"m": FakeModel(says("Hi."))}, tools=Functions(tool(look)))) as url, opened(url) as page:
        await page.get_by_role("button", name="Tools").first.click()
        await page.locator(".tool summary").first.click()
        await expect(page.locator(".tool-body")).to_contain_text("Look.\\u{202e}")
        assert len(await page.locator(".tool-body").inner_text()) < 10_000
