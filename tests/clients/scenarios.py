"""What the models say that clients of other languages are tried with: one model a scenario, named after it."""

from collections.abc import Mapping
from typing import Any

from callsmith.core.errors import Unavailable
from callsmith.core.events import Text
from callsmith.core.ports import Model
from callsmith.core.values import Call
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.formats.write import write
from callsmith.models.local import LocalModel
from tests.fakes import FakeModel

HERMES = format_named("hermes")
SAID = "Let me look at that."
CODE = "def f(x):\n    return \"{x}\" \\ '1'  # naïve 東京 🐈\n"
CALLS: list[list[Any]] = [["write_file", {"path": "a.py", "content": CODE, "mode": 420}], ["now", {}]]
LETTERS = "Grüße nach 東京 👩‍👩‍👧."
ESCAPED = '{"name": "write_file", "arguments": {"path": "\\u6771", "content": "\\ud83d\\udc08 🐈 \\\\u00e9"}}'
SUMS: list[list[Any]] = [["add", {"a": 1, "b": 2}], ["add", {"a": 3, "b": 4}]]
SUMMED = "The sums are 3 and 7."
KOELN = '{"name": "Köln", "people": 1}'
GONE = "the engine is gone"


def calling(*calls: list[Any], said: str = "") -> str:
    return write(HERMES, [Call(name, arguments, f"call_{at}") for at, (name, arguments) in enumerate(calls)], text=said)


def scripted(*replies: str, chunk: int = 4) -> LocalModel:
    return LocalModel(Scripted(replies, chunk=chunk, repeat=True), HERMES, Template(CHATML))


def models() -> Mapping[str, Model]:
    """A model for every scenario."""
    return {
        "plain": scripted("Hello there, how are you?"),
        "calls": scripted(calling(*CALLS, said=SAID), chunk=3),
        "bare": scripted(calling(["now", {}])),
        "letters": scripted(f"{LETTERS}\n<tool_call>\n{ESCAPED}\n</tool_call>", chunk=1),
        "thinks": scripted("<think>\nHow polite.\n</think>\n\nHello."),
        "cut": scripted("one two three four five six"),
        "cut_call": scripted(calling(CALLS[0])),
        "broken": FakeModel([Text("so "), Text("far"), Unavailable(GONE)]),
        "rounds": scripted(f"<think>\nTwo sums.\n</think>\n\n{calling(*SUMS, said=SAID)}", SUMMED),
        "object": scripted(KOELN),
        "mixed": scripted(calling(*SUMS, said=SAID), KOELN),
    }
