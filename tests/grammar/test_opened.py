"""Answers that the prompt has begun: the grammar continues behind what the template has opened."""

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.formats import format_named
from callsmith.formats.write import write
from tests.formats.laws import calls_in
from tests.grammar.checking import PLAIN, call, check_calls, read, read_sample, required, stuck
from tests.grammar.sampling import Sampler, compiler

pytestmark = pytest.mark.weights


@pytest.mark.parametrize(
    ("name", "opened", "rest"),
    [
        ("hermes", "<|im_start|>assistant\n<think>\n", "Paris it is.\n</think>\n\n"),
        ("deepseek-v32", "<think>", "hm</think>\n\n"),
        ("functionary-v32", "<|start_header_id|>assistant<|end_header_id|>\n\n>>>", ""),
        ("harmony", "<|start|>assistant", ""),
        ("muse-glimmer", "<|start|>assistant", ""),
        ("kimi-k3", "<|open|>response<|sep|>", "<|close|>response<|sep|>"),
        ("mistral", "[/INST]", ""),
    ],
)
@pytest.mark.parametrize("dressed", [False, True])
def test_what_the_prompt_has_begun_is_gone_on_with(name: str, opened: str, rest: str, dressed: bool) -> None:
    format, tools = format_named(name), [PLAIN]
    grammar = required(format, tools, opened=opened)
    assert opened.rstrip().endswith(grammar.prefix.rstrip())
    assert bool(grammar.prefix) == (name != "mistral")
    whole = write(format, [call(format, "f", {"n": 1, "s": "a"})])
    text = rest + (whole if rest else whole.removeprefix(grammar.prefix))
    assert stuck(grammar, text, name if dressed else "") is None
    assert calls_in(read(format, [text], tools, opened)) == [("f", {"n": 1, "s": "a"})]
    tokens, compiling = compiler(name if dressed else "")
    sampler = Sampler(tokens, compiling, format, name)
    for _ in range(8):
        sample = sampler.draw(grammar)
        if sample.whole:
            assert check_calls(read_sample(format, sample, tools, tokens.specials, opened), tools, grammar, sample.text)


def test_a_model_may_think_before_it_calls() -> None:
    hermes = format_named("hermes")
    grammar = required(hermes, [PLAIN], thinking=True)
    tool_calls = [call(hermes, "f", {"n": 1, "s": "a"})]
    assert stuck(grammar, write(hermes, tool_calls, thought="Let me think.")) is None
    assert stuck(grammar, write(hermes, tool_calls)) is None
    assert stuck(required(hermes, [PLAIN]), write(hermes, tool_calls, thought="Let me think.")) is not None


def test_a_message_that_the_prompt_has_opened_stays_empty_before_a_required_call() -> None:
    kimi = format_named("kimi-k3")
    opened, close = "<|open|>response<|sep|>", "<|close|>response<|sep|>"
    text = write(kimi, [call(kimi, "f", {"n": 1, "s": "a"})])
    assert stuck(required(kimi, [PLAIN], opened=opened), close + text) is None
    assert stuck(required(kimi, [PLAIN], opened=opened), f"Sure.{close}{text}") is not None
