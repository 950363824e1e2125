"""Custom tools with grammars, with OpenAI's own client: what is wrong is said with its line, and a model is held by them."""

from typing import Any

import openai
import pytest

pytest.importorskip("llguidance")
pytest.importorskip("xllamacpp")

from callsmith.engines.scripted import Scripted
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from tests.journeys.scripts import HERMES, HI, app_of, client_of

SUM = 'start: sum\nsum: sum "+" NUMBER | NUMBER\nNUMBER: /[0-9]{1,4}/\n'


def custom(definition: str, syntax: str = "lark") -> dict[str, Any]:
    return {
        "type": "custom",
        "name": "calculate",
        "description": "A sum of numbers.",
        "format": {"type": "grammar", "syntax": syntax, "definition": definition},
    }


@pytest.mark.parametrize(
    ("definition", "syntax", "why"),
    [
        ('start: "a"\n  | other', "lark", "line 2: there is no rule 'other'"),
        ('start: "a" start', "lark", "line 1: the rule 'start' has no end"),
        ("(a", "regex", "a bracket that is not closed"),
        ('start: "' + "a" * 150_000 + '"', "lark", "bytes, more than 65536"),
    ],
)
async def test_what_is_wrong_with_a_grammar_is_said_with_its_line(definition: str, syntax: str, why: str) -> None:
    client = client_of(app_of(LocalModel(Scripted(["no"]), HERMES, Template(CHATML))))
    chat: Any = {"type": "custom", "custom": {"name": "f", "format": {"type": "grammar", "grammar": {}}}}
    chat["custom"]["format"]["grammar"] = {"syntax": syntax, "definition": definition}
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model="m", messages=HI, tools=[chat])
    assert why in str(refused.value)
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model="m", input="hi", tools=[custom(definition, syntax)])  # pyright: ignore[reportArgumentType]
    assert why in str(refused.value)


@pytest.mark.weights
async def test_a_real_model_is_held_by_the_grammar(shallow: LocalModel) -> None:
    client = client_of(app_of(shallow))
    for seed in range(3):
        response = await client.responses.create(
            model="m",
            input="What is 17 and 25?",
            tools=[custom(SUM)],  # pyright: ignore[reportArgumentType]
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=1.0,
            max_output_tokens=200,
            extra_body={"seed": seed},
        )
        item = response.output[-1]
        if response.status == "completed":
            assert isinstance(item, openai.types.responses.ResponseCustomToolCall)
            assert all(number.isdigit() and len(number) < 5 for number in item.input.split("+"))
