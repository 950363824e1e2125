"""The benchmark of deciding tells the time to the first word: of an answer without words there is none."""

import pytest

from benchmarks.deciding import first_token
from callsmith.core.values import Message, Request, Tool
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel

CALL = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize(("reply", "has_words"), [("Hello!", True), (CALL, False)])
async def test_an_answer_that_is_a_call_is_not_the_fastest_of_all(reply: str, has_words: bool):
    model = LocalModel(Scripted([reply]), format_named("hermes"), Template(CHATML))
    seconds, read = await first_token(model, Request((Message.user("Hi"),), (Tool("add"),)))
    assert (seconds is not None) is has_words
    assert read > 0
