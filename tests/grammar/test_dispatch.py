"""Law 4 through a relay: for many tools, grammars that take turns allow just what one grammar of all of them does."""

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

import numpy as np

from callsmith.core.errors import UnsupportedSchema
from callsmith.core.events import Text, Thought
from callsmith.core.values import Call, Choice, Tool
from callsmith.engines.decoding.compiler import Compiler, TriggeredConstraint
from callsmith.engines.decoding.relay import RelayConstraint
from callsmith.engines.decoding.trials import Cancellation
from callsmith.formats import format_named, formats
from callsmith.formats.algebra import Format
from callsmith.formats.write import write
from callsmith.grammar.relay import MAX_TOOLS_IN_ONE_GRAMMAR, Relay, relay_for
from tests.effort import tries
from tests.grammar.checking import TOOLS, call, check_calls, obj, read_sample
from tests.grammar.sampling import Sampler, compiler, letters

pytestmark = pytest.mark.weights

STRING, INTEGER = {"type": "string"}, {"type": "integer"}
# Names that begin alike, and names that are the beginning of others.
KIN = [
    Tool("get", "", obj({"key": STRING}, "key")),
    Tool("get_weather", "", obj({"city": STRING, "days": INTEGER}, "city")),
    Tool("get_weather_forecast", "", obj({"city": STRING}, "city")),
    Tool("get_weather_2", "", obj({"n": INTEGER})),
    Tool("get_weather_20", "", obj({"n": INTEGER}, "n")),
    Tool("g", "", obj({"x": INTEGER}, "x")),
]
MANY = [*TOOLS, *KIN]
# Their calls do not begin with the name, or nothing tells the next call from the end.
ALONE = {"cohere-command3", "solar-open", "olmo3", "fenced-python"}
EVERY = pytest.mark.parametrize("format", formats().values(), ids=lambda format: format.name)


def relay(format: Format, tools: Sequence[Tool] = MANY, choice: Choice = Choice("required"), **options: Any) -> Relay:
    relay_grammar = relay_for(format, tools, choice, **options)
    assert relay_grammar is not None
    return relay_grammar


def stuck(relay_grammar: Relay, text: str, dressed_for: str = "") -> str | None:
    """Where the relay does not go along with a text any more; None: the text is a whole answer."""
    tokens, compiling = compiler(dressed_for)
    wanted = tokens.tokenize(text) if dressed_for else letters(tokens.base, text)
    constraint = compiling.begin(relay_grammar)
    assert isinstance(constraint, RelayConstraint)
    for at, token in enumerate(wanted):
        if not constraint.admits(token):
            return b"".join(tokens.says[token] for token in wanted[at:]).decode("utf-8", "replace")[:80]
    return None if constraint.may_end or constraint.ended else "(the end)"


ARGUMENTS: list[tuple[str, dict[str, Any]]] = [
    ("get", {"key": "a b"}),
    ("get_weather", {"city": "Paris", "days": 2}),
    ("get_weather_forecast", {"city": "Rome"}),
    ("now", {}),
    ("get_weather_2", {}),
    ("get_weather_20", {"n": 5}),
    ("g", {"x": -1}),
]


def dispatched(format: Format) -> None:
    if format.name in ALONE:
        pytest.skip("this format has no relay")


@EVERY
@pytest.mark.parametrize("dressed", [False, True])
@pytest.mark.sampled
def test_what_is_written_is_accepted(format: Format, dressed: bool) -> None:
    dispatched(format)
    calls = [call(format, name, arguments) for name, arguments in ARGUMENTS]
    several, single = relay(format), relay(format, parallel=False)
    dressed_for = format.name if dressed else ""
    for valid_call in calls:
        assert stuck(several, write(format, [valid_call]), dressed_for) is None
        assert stuck(single, write(format, [valid_call]), dressed_for) is None
    if format.calls.most is None:
        assert stuck(several, write(format, calls), dressed_for) is None
    assert stuck(single, write(format, calls[:2]), dressed_for) is not None


@EVERY
def test_a_wrong_call_is_rejected(format: Format) -> None:
    dispatched(format)
    relay_grammar = relay(format)
    right = call(format, "get", {"key": "a"})
    for name, arguments in [("got", {}), ("get_weather", {"days": 1}), ("get_weather_2", {"m": 1}), ("get_weather_200", {})]:
        wrong = call(format, name, arguments)
        assert stuck(relay_grammar, write(format, [wrong])) is not None
        assert stuck(relay_grammar, write(format, [right, wrong])) is not None
    assert stuck(relay_grammar, write(format, [right]) + " and more") is not None


def samples(format: Format, count: int) -> tuple[int, int]:
    """How many answers came to their end, and how many of those held several calls."""
    finished = several = 0
    for dressed in (False, True):
        tokens, compiling = compiler(format.name if dressed else "")
        sampler = Sampler(tokens, compiling, format, format.name)
        for number in range(count // 2):
            parallel = number % 4 != 0
            relay_grammar = relay(format, parallel=parallel)
            sample = sampler.draw(relay_grammar)
            if not sample.whole:
                continue
            finished += 1
            events = read_sample(format, sample, MANY, tokens.specials)
            calls = check_calls(events, MANY, relay_grammar.whole(), sample.text)
            assert calls, sample.text
            assert len(calls) < 2 or parallel, sample.text
            assert not [event for event in events if isinstance(event, Text | Thought)], sample.text
            several += len(calls) > 1
    return finished, several


@pytest.mark.req("R65", "R72")
@EVERY
@pytest.mark.sampled
def test_whatever_the_relay_lets_through_is_read_back_as_valid_calls(format: Format) -> None:
    dispatched(format)
    count = tries(8, 48)
    finished, several = samples(format, count)
    assert finished > count * 0.7
    assert several or format.calls.most == 1 or count < 48  # of few answers all may hold one call


@pytest.mark.slow
@EVERY
def test_hundreds_of_answers_out_of_the_relay_are_read_back_as_valid_calls(format: Format) -> None:
    dispatched(format)
    count = tries(100, 200, 1000)
    assert samples(format, count)[0] > count * 0.7


# -- what stands before the calls


@pytest.mark.parametrize("dressed", [False, True])
@pytest.mark.parametrize(
    ("name", "opened", "rest"),
    [
        ("hermes", "<|im_start|>assistant\n<think>\n", "Paris it is.\n</think>\n\n"),
        ("deepseek-v32", "<think>", "hm</think>\n\n"),
        ("functionary-v32", "<|start_header_id|>assistant<|end_header_id|>\n\n>>>", ""),
        ("harmony", "<|start|>assistant", ""),
        ("muse-glimmer", "<|start|>assistant", ""),
        ("kimi-k3", "<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    ],
)
def test_what_the_prompt_has_begun_is_gone_on_with(name: str, opened: str, rest: str, dressed: bool) -> None:
    format = format_named(name)
    relay_grammar = relay(format, opened=opened)
    whole = write(format, [call(format, "get_weather", {"city": "a"})])
    text = rest + (whole if rest else whole.removeprefix(relay_grammar.prefix))
    assert stuck(relay_grammar, text, name if dressed else "") is None
    assert stuck(relay_grammar, text.replace("get_weather", "got_weather"), name if dressed else "") is not None
    tokens, compiling = compiler(name if dressed else "")
    sampler = Sampler(tokens, compiling, format, name)
    for _ in range(8):
        sample = sampler.draw(relay_grammar)
        if sample.whole:
            assert check_calls(
                read_sample(format, sample, MANY, tokens.specials, opened), MANY, relay_grammar.whole(), sample.text
            )


@pytest.mark.parametrize("dressed", [False, True])
def test_a_model_may_think_before_it_calls(dressed: bool) -> None:
    hermes = format_named("hermes")
    relay_grammar = relay(hermes, thinking=True)
    calls = [call(hermes, "get", {"key": "a"}), call(hermes, "now", {})]
    for thought in ("", "Let me think."):
        assert stuck(relay_grammar, write(hermes, calls, thought=thought), "hermes" if dressed else "") is None
    assert stuck(relay(hermes), write(hermes, calls, thought="Let me think."), "hermes" if dressed else "") is not None


# -- where a call may come


def watch(format: Format, dressed_for: str = "") -> tuple[Any, TriggeredConstraint]:
    tokens, compiling = compiler(dressed_for)
    started = compiling.start(relay(format, choice=Choice()))
    assert isinstance(started, TriggeredConstraint)
    return tokens, started


def say(started: TriggeredConstraint, tokens: list[int]) -> int:
    """How many of the tokens are taken."""
    for at, token in enumerate(tokens):
        if not started.admits(token):
            return at
        if (active := started.active) and not active.among(np.array([token]))[0] and not started._taken:
            return at
        started.consume(token)
    return len(tokens)


@EVERY
@pytest.mark.parametrize("dressed", [False, True])
@pytest.mark.sampled
def test_from_the_trigger_on_only_a_valid_call_can_follow(format: Format, dressed: bool) -> None:
    if format.name in ALONE or relay_for(format, MANY, Choice()) is None:
        pytest.skip("this format has no relay where a call may come")
    for text in ("", "Well, let me see. "):
        tokens, started = watch(format, format.name if dressed else "")
        spelled = tokens.tokenize if dressed else lambda text: letters(compiler()[0].base, text)
        right = spelled(text + write(format, [call(format, "get_weather_forecast", {"city": "Rome"})]))
        assert say(started, right) == len(right)
        assert started.active
        assert started.may_end
        _, started = watch(format, format.name if dressed else "")
        wrong = spelled(text + write(format, [call(format, "get_weather_forecast", {"place": "Rome"})]))
        assert say(started, wrong) < len(wrong)


def test_text_the_grammar_does_not_know_leaves_the_answer_alone() -> None:
    tokens, started = watch(format_named("hermes"), "hermes")
    text = tokens.tokenize("A stray <think> in the text. <tool_call>\nand so on")
    assert say(started, text) == len(text)
    assert not started.active


# -- what is left to one grammar, and what is wrong


def test_few_tools_need_no_relay() -> None:
    assert relay_for(format_named("hermes"), MANY[:MAX_TOOLS_IN_ONE_GRAMMAR], Choice("required")) is None
    assert relay_for(format_named("hermes"), MANY, Choice.only("get")) is None
    assert relay_for(format_named("cohere-command3"), MANY, Choice("required")) is None


def test_where_nothing_tells_another_call_from_the_end_one_grammar_holds_all() -> None:
    olmo, (_, compiling) = format_named("olmo3"), compiler()
    assert not isinstance(compiling.begin(relay(olmo)), RelayConstraint)
    assert isinstance(compiling.begin(relay(olmo, parallel=False)), RelayConstraint)


@pytest.mark.parametrize(
    ("format", "schema"),
    [
        ("hermes", obj({"a": {"$ref": "#/$defs/nothing"}})),
        ("gemma4", obj({"a:b": STRING})),
    ],
)
def test_a_tool_that_cannot_be_held_to_its_schema_is_named(format: str, schema: dict[str, Any]) -> None:
    _, compiling = compiler()
    relay_grammar = relay(format_named(format), [*MANY, Tool("bad_tool", "", schema)])
    with pytest.raises(UnsupportedSchema, match="bad_tool"):
        compiling.check(relay_grammar, "bad_tool", Cancellation())
    assert "bad_tool" in compiling.list_unchecked(relay_grammar)
    compiling.check(relay_grammar, "get", Cancellation())
    assert "get" not in compiling.list_unchecked(relay_grammar)
    with pytest.raises(UnsupportedSchema, match="bad_tool"):
        stuck(relay_grammar, write(format_named(format), [Call("bad_tool", {})]))


@EVERY
@pytest.mark.parametrize("mode", ["required", "auto"])
def test_an_answer_compiles_nothing_for_a_tool_that_was_checked(
    format: Format, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tools begin alike: what is compiled ahead is what an answer changes to, when it writes the usual tokens."""
    dispatched(format)
    relay_grammar = relay_for(format, MANY, Choice(mode), parallel=False)
    tokens, compiling = compiler(format.name)
    if relay_grammar is None or not isinstance(compiling.begin(relay_grammar), RelayConstraint):
        pytest.skip("this format has no relay here")
    if len(relay_grammar.triggers) > 1:
        pytest.skip("calls have no marker of their own, and are compiled when one has begun")
    for name in compiling.list_unchecked(relay_grammar):
        compiling.check(relay_grammar, name)
    assert not compiling.list_unchecked(relay_grammar)
    late: list[object] = []
    prepare = compiling._prepare
    monkeypatch.setattr(compiling, "_prepare", lambda grammar, *rest: late.append(grammar) or prepare(grammar, *rest))
    for name, arguments in ARGUMENTS:
        constraint = compiling.begin(relay_grammar)
        for token in tokens.tokenize(write(format, [call(format, name, arguments)])):
            assert constraint.admits(token)
        assert constraint.may_end or constraint.ended
        assert not late, name


def test_of_many_tools_only_some_are_compiled_ahead() -> None:
    """They would push the grammars of other sets out of the cache."""
    tokens, _ = compiler()
    compiling, tools = Compiler(tokens), [Tool(f"tool_{number:03}", "", obj({"a": STRING})) for number in range(150)]
    relay_grammar = relay(format_named("hermes"), tools)
    compiling.begin(relay_grammar)
    for name in compiling.list_unchecked(relay_grammar):
        compiling.check(relay_grammar, name)
    assert not compiling.list_unchecked(relay_grammar)
    assert 10 < len(compiling._prepared) <= 33


def test_a_costly_tool_is_never_compiled_ahead_for_its_neighbours() -> None:
    tokens, _ = compiler()
    compiling = Compiler(tokens)
    costly = Tool("near_2", "", obj({"a": {"type": "string", "pattern": "^(ab|c)*$"}}))
    relay_grammar = relay(format_named("hermes"), [*MANY, Tool("near_1", "", obj({"a": STRING})), costly])
    compiling.check(relay_grammar, "near_1")
    assert "near_1" not in compiling.list_unchecked(relay_grammar)
    assert not [lark for lark in compiling._compiled._entries if "(ab|c)" in str(lark)]


def test_the_grammar_of_one_call_is_shared_by_all_sets_of_tools_that_have_it() -> None:
    tokens, _ = compiler()
    compiling, hermes = Compiler(tokens), format_named("hermes")
    text = letters(tokens.base, write(hermes, [call(hermes, "mixed", {"e": "a", "c": "fixed"})]))
    for tools in (MANY, MANY[::-1], MANY[1:]):
        constraint = compiling.begin(relay(hermes, tools))
        assert all(constraint.admits(token) for token in text)
    larks = [lark for lark in compiling._compiled._entries if "fixed" in str(lark)]
    assert len(larks) == 1
