"""Grammars, expressions and schemas that are made to crash the compiler or to keep it busy."""

import asyncio
import subprocess
import sys
import threading

import pytest

pytest.importorskip("llguidance")

from callsmith.core.errors import GrammarFailed, UsageError
from callsmith.core.values import Choice, Output, Sampling, Tool
from callsmith.engines.decoding.compiler import Compiler
from callsmith.engines.decoding.trials import STACK, Cancellation, Cancelled
from callsmith.formats import format_named
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import Prompt
from callsmith.grammar.limits import MAX_BYTES, MAX_PATTERN, MAX_RULES, is_simple
from callsmith.grammar.nodes import Grammar
from callsmith.grammar.output import output_grammar
from callsmith.grammar.relay import Relay, relay_for
from callsmith.models.local import LocalModel
from callsmith.wire.errors import describe_error
from tests.grammar.sampling import vocabulary

PLAIN = Format(name="plain", parts=())


def chain(rules: int) -> str:
    """Each rule refers to the next: the compiler goes down one level of its stack for each."""
    return "start: r0\n" + "".join(f'r{n}: "a" r{n + 1}\n' for n in range(rules)) + f'r{rules}: "z"\n'


SLOW = "start: T\nT: " + " & ".join(f"/(.*a.{{{n}}}b.*)/" for n in range(30)) + "\n"  # more than a minute
AMBIGUOUS = "start: " + " ".join('("a" | "b" | "c" | "d")?' for _ in range(1000)) + "\n"


@pytest.mark.parametrize(
    ("output", "limit"),
    [
        (Output(grammar=chain(2700)), f"at most {MAX_RULES}"),
        (Output(grammar='start: "' + "a" * MAX_BYTES + '"'), f"at most {MAX_BYTES}"),
        (Output(grammar="start: " + "(" * 60 + '"a"' + ")" * 60), "nested more than"),
        (Output(grammar="root ::= " + "(" * 60 + '"a"' + ")" * 60), "nested more than"),
        (Output(grammar="".join(f'r{n} ::= "a" r{n + 1}\n' for n in range(2700))), "more than"),
        (Output(pattern="a?" * MAX_PATTERN), f"at most {MAX_PATTERN}"),
        (Output(pattern="(" * 60 + "a" + ")" * 60), "nested more than"),
    ],
)
def test_what_is_beyond_the_bounds_is_refused_before_it_is_compiled(output: Output, limit: str):
    with pytest.raises(UsageError, match=limit):
        output_grammar(PLAIN, output)


PROGRAM = """
from callsmith.core.errors import UsageError
from callsmith.engines.decoding.compiler import Compiler
from callsmith.engines.decoding.trials import Cancellation
from tests.attack import test_grammar_bombs as bombs
from tests.grammar.sampling import vocabulary

compiler = Compiler(vocabulary())
try:
    compiler.compile(bombs.chain(60_000), Cancellation())
except UsageError as error:
    print(error)
print(compiler.compile('start: "alive"', Cancellation()).is_error())
"""


def test_a_grammar_that_overflows_the_stack_does_not_end_the_process():
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, ["False"]), ended.stderr
    assert "too complex" in ended.stdout


@pytest.fixture
def compiler():
    shared_compiler = Compiler(vocabulary())
    yield shared_compiler
    shared_compiler.close()


def test_a_grammar_that_never_ends_compiling_is_refused(compiler: Compiler):
    compiler._trials.seconds = 0.5
    with pytest.raises(UsageError, match="too complex"):
        compiler.compile(SLOW, Cancellation())
    compiler._trials.seconds = 60
    assert compiler.compile("start: /a{1000}/\n", Cancellation())  # by a new worker


def test_a_cancelled_request_ends_its_compile_and_leaves_the_next_one_alone(compiler: Compiler):
    compiler._trials.seconds = 600
    cancellation, started = Cancellation(), threading.Event()
    ended: list[BaseException] = []

    def compile_slowly() -> None:
        started.set()
        try:
            compiler.compile(SLOW, cancellation)
        except Cancelled as error:
            ended.append(error)

    thread = threading.Thread(target=compile_slowly)
    thread.start()
    started.wait()
    assert compiler.compile("start: /a{1000}/\n", Cancellation())  # beside it
    cancellation.set()
    thread.join(30)
    assert ended
    with pytest.raises(Cancelled):
        compiler.compile("start: /a{1001}/\n", cancellation)


def test_a_grammar_too_ambiguous_for_its_first_token_is_refused(compiler: Compiler):
    with pytest.raises(UsageError, match="ambiguous"):
        compiler.compile(AMBIGUOUS, Cancellation())


def test_a_chain_of_rules_that_double_is_the_requests_fault_and_not_the_servers(compiler: Compiler):
    """The compiler takes it, and gives up where every token could have come about in very many ways."""
    doubling = "root ::= r0\n" + "".join(f"r{n} ::= r{n + 1} r{n + 1}\n" for n in range(200)) + 'r200 ::= "a"\n'
    with pytest.raises((UsageError, GrammarFailed)) as failed:
        matcher = compiler.start(Grammar(output_grammar(PLAIN, Output(grammar=doubling)).node), Cancellation())
        for _ in range(20):
            matcher.consume(matcher.find_forced()[0])
    assert describe_error(failed.value).status == 400


def test_a_tool_that_may_be_costly_is_tried_before_the_answer_begins(compiler: Compiler):
    bomb = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(ab|c)*$"}}}
    tools = [Tool(f"t{n}", "", {"type": "object", "properties": {}}) for n in range(9)] + [Tool("bomb", "", bomb)]
    relay = relay_for(format_named("hermes"), tools, Choice("required"))
    assert isinstance(relay, Relay)
    assert relay.costly() == ["bomb"]
    compiler._trials.seconds = 60
    compiler.start(relay, Cancellation())
    assert "bomb" not in compiler.list_unchecked(relay)
    assert "t1" in compiler.list_unchecked(relay)


def test_what_is_not_tried_is_small(compiler: Compiler):
    assert is_simple('start: "a"')
    for costly in (
        chain(700),
        SLOW,
        AMBIGUOUS,
        "start: /a{1,9999}/",
        "start: %lark {\nstart: /a/\n}",
        'start: %json {"pattern": "a"}',
    ):
        assert not is_simple(costly)
    deepest = chain(500)
    assert is_simple(deepest) and len(deepest.splitlines()) * 16_384 < STACK  # bytes a level, five times what was measured


async def test_the_compile_of_a_request_that_left_holds_nobody_up(shallow: LocalModel):
    engine = shallow.engine
    bombs = [engine.generate(Prompt("a"), Sampling(max_tokens=1), slow_grammar()) for _ in range(4)]
    tasks = [asyncio.ensure_future(anext(bomb)) for bomb in bombs]
    await asyncio.sleep(0.3)
    pieces = [piece async for piece in engine.generate(Prompt("a"), Sampling(max_tokens=1), simple_grammar())]
    assert pieces
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(item, asyncio.CancelledError | UsageError) for item in ended), ended


def slow_grammar() -> Grammar:
    return Grammar(output_grammar(PLAIN, Output(grammar=SLOW)).node)


def simple_grammar() -> Grammar:
    return Grammar(output_grammar(PLAIN, Output(choices=("yes", "no"))).node)
