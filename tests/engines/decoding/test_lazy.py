"""A grammar with triggers costs nothing until one is written, and holds from there on. On a real vocabulary."""

import pytest

pytest.importorskip("xllamacpp")

import numpy as np

from callsmith.core.values import Choice, Tool
from callsmith.engines.decoding.compiler import Compiler, TriggeredConstraint
from callsmith.engines.llama.gguf import GgufVocabulary
from callsmith.formats import format_named
from callsmith.grammar.calls import grammar_for
from tests.grammar.sampling import vocabulary as open_vocabulary

pytestmark = pytest.mark.weights

MAIL = Tool(
    "send_email",
    "",
    {"type": "object", "properties": {"to": {"type": "string"}, "n": {"type": "integer"}}, "required": ["to", "n"]},
)
HEAD = "<tool_call>\n<name>send_email</name>\n<arguments>"


@pytest.fixture(scope="module")
def vocabulary() -> GgufVocabulary:
    return open_vocabulary()


def watch(vocabulary: GgufVocabulary, format: str = "generic-xml") -> TriggeredConstraint:
    grammar = grammar_for(format_named(format), [MAIL], Choice("auto"))
    assert grammar is not None and grammar.triggers
    started = Compiler(vocabulary).start(grammar)
    assert isinstance(started, TriggeredConstraint)
    return started


def say(watch: TriggeredConstraint, vocabulary: GgufVocabulary, text: str) -> None:
    for token in vocabulary.tokenize(text):
        assert watch.admits(token)
        watch.consume(token)


def allowed(watch: TriggeredConstraint, vocabulary: GgufVocabulary) -> list[str]:
    logits = np.zeros(vocabulary.size, np.float32)
    watch.restrict(logits)
    return [vocabulary.text(int(token)) for token in np.flatnonzero(logits > -1)]


def test_text_is_not_constrained(vocabulary: GgufVocabulary):
    started = watch(vocabulary)
    say(started, vocabulary, "Well, <tool is no marker, and {this} is no call.")
    assert len(allowed(started, vocabulary)) == vocabulary.size
    assert not started.find_forced()
    assert started.may_end


@pytest.mark.req("R70")
@pytest.mark.req("R227")
def test_from_the_trigger_on_only_a_valid_call_can_follow(vocabulary: GgufVocabulary):
    started = watch(vocabulary)
    say(started, vocabulary, f'Sure, I will. {HEAD}{{"to": ')
    assert all(text.startswith('"') for text in allowed(started, vocabulary))
    say(started, vocabulary, '"me", "n": 3')
    assert not any(text.isalpha() for text in allowed(started, vocabulary))
    say(started, vocabulary, "}</arguments>\n</tool_call>")
    assert started.may_end


def test_what_the_trigger_is_followed_by_is_forced(vocabulary: GgufVocabulary):
    started = watch(vocabulary)
    say(started, vocabulary, "Sure. <tool_call>")
    assert "".join(vocabulary.text(token) for token in started.find_forced()).startswith("\n<name>send_email</name>")


def test_a_token_that_writes_the_trigger_and_then_too_much_is_not_admitted(vocabulary: GgufVocabulary):
    started = watch(vocabulary)
    say(started, vocabulary, "Sure. <tool_call")
    too_much = [
        token for token in range(vocabulary.size) if vocabulary.says[token].startswith(b">") and len(vocabulary.says[token]) > 1
    ]
    refused = [token for token in too_much if not started.admits(token)]
    assert refused
    assert all(not vocabulary.says[token].startswith(b">\n") for token in refused)


def test_text_the_grammar_does_not_know_leaves_the_answer_alone(vocabulary: GgufVocabulary):
    started = watch(vocabulary, "hermes")
    say(started, vocabulary, "A stray <think> in the text. <tool_call>")
    assert len(allowed(started, vocabulary)) == vocabulary.size
