"""A client drops what the model thought and spells its calls anew: the next prompt goes on from what the model wrote."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

import pytest

from callsmith.core.capability.origin import Origin
from callsmith.core.events import CallReady, Started
from callsmith.core.values import Call, Message, Request, Result, Sampling, Tool
from callsmith.engines.port import Engine, EngineInfo, Finished, Piece
from callsmith.engines.scripted import Scripted
from callsmith.formats import format_named
from callsmith.formats.prompt.prompt import Prompt
from callsmith.formats.prompt.template import Template
from callsmith.grammar.nodes import Alt, Grammar, Lit, Seq
from callsmith.grammar.relay import Relay
from callsmith.models.local import LocalModel
from callsmith.models.weights.catalogue import catalogue

SAVE = Tool("save", "Save a text.", {"type": "object", "properties": {"name": {"type": "string"}, "text": {"type": "string"}}})
HERMES, QWEN = format_named("hermes"), Template(catalogue()["qwen2.5-coder-1.5b"].template or "")
THOUGHT = "The user wants a poem. " * 10
POEM = "The sea is wide and blue. " * 30
ANSWER = (
    f'<think>\n{THOUGHT}\n</think>\n\n<tool_call>\n{{"name":"save","arguments":{{"name":"a","text":"{POEM}"}}}}\n</tool_call>'
)
MINE = Origin(cache_salt="mine")
ASKED = Request((Message.user("A poem about the sea, please."),), (SAVE,), sampling=Sampling(max_tokens=400), origin=MINE)


def asked_again(call: Call) -> Request:
    """What a client sends that has run the call, and forgotten the rest."""
    spelled = Call(call.name, dict(reversed(call.arguments.items())), call.id)
    return replace(
        ASKED, messages=(*ASKED.messages, Message.assistant(calls=(spelled,)), Message.tool(Result(call.id, "save", "done")))
    )


async def call_of(model: LocalModel, request: Request = ASKED) -> Call:
    return next(event.call for event in [event async for event in model.stream(request)] if isinstance(event, CallReady))


async def test_the_next_prompt_goes_on_from_what_the_model_wrote() -> None:
    engine = Scripted([ANSWER, "Saved."])
    model = LocalModel(engine, HERMES, QWEN)
    call = await call_of(model)
    [_ async for _ in model.stream(asked_again(call))]
    first, second = (request.prompt for request in engine.asked)
    assert second.text.startswith(first.text + ANSWER + "<|im_end|>\n")


async def test_nobody_elses_turns_are_spliced_in() -> None:
    engine = Scripted([ANSWER, "Saved."])
    model = LocalModel(engine, HERMES, QWEN)
    call = await call_of(model)
    [_ async for _ in model.stream(replace(asked_again(call), origin=Origin(cache_salt="another")))]
    assert THOUGHT not in engine.asked[1].prompt.text


@dataclass
class Dictated:
    """The engine, which is told every word of its next answer; how that ends is left to it, lest there be nothing to compute."""

    engine: Engine
    words: str | None

    @property
    def info(self) -> EngineInfo:
        return self.engine.info

    def generate(
        self, prompt: Prompt, sampling: Sampling, grammar: Grammar | Relay | None = None
    ) -> AsyncGenerator[Piece | Finished, None]:
        words, self.words = self.words, None
        if words is not None:
            grammar = Grammar(Seq((Lit(words), Alt((Lit("\n"), Lit(" "))))))
        return self.engine.generate(prompt, sampling, grammar)

    async def count(self, text: str) -> int:
        return await self.engine.count(text)

    async def close(self) -> None:
        await self.engine.close()


@pytest.mark.weights
async def test_a_real_engine_reads_next_to_nothing_again(shallow: LocalModel) -> None:
    async def read_again(other: LocalModel | None) -> int:
        model = LocalModel(Dictated(shallow.engine, ANSWER), HERMES, QWEN)
        call = await call_of(model)
        events = (other or model).stream(replace(asked_again(call), sampling=Sampling(max_tokens=1)))
        started = next(event for event in [event async for event in events] if isinstance(event, Started))
        return started.usage.prompt - started.usage.cached

    forgetful = LocalModel(shallow.engine, HERMES, QWEN)  # knows nothing of the first turn
    spliced, plain = await read_again(None), await read_again(forgetful)
    assert spliced < 40
    assert plain > 200
