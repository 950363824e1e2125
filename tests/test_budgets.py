"""What docs/performance.md and docs/evaluation.md say of time, memory and reliability: measured anew, or added up."""

import re
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("xllamacpp")

from benchmarks import budgets, grammar, memory
from benchmarks.measure import cpu_time
from callsmith.core.values import Call, Choice
from callsmith.engines.decoding.compiler import Compiler
from callsmith.formats import format_named, formats
from callsmith.formats.reader.parse import parse
from callsmith.formats.reader.reader import Reader
from callsmith.models.grammars import Grammars
from tests.grammar.sampling import vocabulary

DOCS = Path(__file__).parent.parent / "docs"
ALLOWED_KB = {"a tool": 1, "the grammar of a tool set": 10, "an answer that is being read": 1}


def rows(number: str) -> dict[str, tuple[str, str]]:
    """The budgets of a requirement: what it is of, what was measured, and whether it is kept."""
    page = (DOCS / "performance.md").read_text("utf-8")
    cells = re.findall(rf"^\| {number} \| ([^:|]+): [^|]* \| ([^|]*) \| ([^|]*) \|$", page, re.MULTILINE)
    return {what: (measured, kept) for what, measured, kept in cells}


def first_number(text: str) -> float:
    match = re.search(r"\d+(\.\d+)?", text)
    assert match
    return float(match[0])


@pytest.mark.weights
@pytest.mark.req("R178")
def test_a_tool_a_grammar_and_an_answer_take_what_is_said_and_nothing_when_they_are_gone() -> None:
    hermes, tools = format_named("hermes"), memory.new_set()
    compiler, sets = Compiler(vocabulary()), iter([memory.new_set() for _ in range(64)])  # the tools are not the grammar's

    def compiled() -> Any:
        kept = Grammars(hermes, relays=True)
        compiled_grammar = kept.get(next(sets), Choice("required"), parallel=False)
        assert compiled_grammar is not None
        return kept, compiler.begin(compiled_grammar)

    def reader() -> Reader:
        new_reader = Reader(hermes, tools)
        for piece in memory.MID_ANSWER:
            new_reader.feed(piece)
        return new_reader

    compiled()
    measured = {
        "a tool": memory.python_bytes(memory.new_tool, 300) / 1024,
        "the grammar of a tool set": memory.python_bytes(compiled, 60) / 1024,
        "an answer that is being read": memory.python_bytes(reader, 100) / 1024,
    }
    listed = rows("R178")
    assert listed.keys() == measured.keys()
    for what, kilobytes in measured.items():
        text, kept = listed[what]
        assert kilobytes == pytest.approx(first_number(text), rel=0.6), what  # pytest has its share
        assert kept.startswith("no") is (first_number(text) > 1.5 * ALLOWED_KB[what]), what
    assert memory.python_bytes(lambda: reader().close() and None, 100) < 512


def best_of(work: Callable[[], object]) -> float:
    """Milliseconds of CPU, the best of some rounds: what else the machine does is left out."""
    return 1e3 * min(cpu_time(work) for _ in range(9))


@pytest.mark.req("R172")
def test_an_answer_with_a_call_is_read_within_its_budget_in_every_format() -> None:
    tools = [grammar.tool(0)]
    texts = {name: (known, budgets.written(known, tools[0], budgets.ARGUMENTS)) for name, known in formats().items()}
    took = {name: best_of(partial(parse, known, text, tools)) for name, (known, text) in texts.items()}
    assert {name: time for name, time in took.items() if time >= 10} == {}
    ((text, kept),) = rows("R172").values()
    assert kept == "yes" and first_number(text) < 10


@pytest.mark.weights
@pytest.mark.req("R174")
def test_the_grammar_of_a_tool_set_is_compiled_within_its_budget_and_once() -> None:
    ours, numbers = grammar.Ours(vocabulary(), "hermes"), count()
    sets = iter([tuple(grammar.tool(next(numbers)) for _ in range(budgets.SET)) for _ in range(9)])
    assert best_of(lambda: ours.start(next(sets))) < 10
    again = tuple(grammar.tool(next(numbers)) for _ in range(budgets.SET))
    first = 1e3 * cpu_time(lambda: ours.start(again, ours.known))
    assert best_of(lambda: ours.start(again, ours.known)) < first / 4
    ((text, kept),) = rows("R174").values()
    assert kept == "yes" and first_number(text) < 10


@pytest.mark.req("R176")
def test_arguments_are_read_within_their_budget() -> None:
    hermes, tool = format_named("hermes"), grammar.tool(0)
    for arguments in (budgets.ARGUMENTS, budgets.MANY_VALUES):
        text = budgets.written(hermes, tool, arguments)
        assert best_of(partial(parse, hermes, text, [tool])) < 1
    ((text, kept),) = rows("R176").values()
    assert kept.startswith("yes") and first_number(text) < 1


@pytest.mark.req("R177")
def test_all_that_a_request_takes_beside_the_model_is_within_its_budget() -> None:
    served = budgets.Served(tuple(grammar.tool(number) for number in range(budgets.SET)))
    assert 1e3 * min(served.cost() for _ in range(5)) < 10
    ((text, kept),) = rows("R177").values()
    assert kept == "yes" and first_number(text) < 10


@pytest.mark.weights
@pytest.mark.req("R175")
def test_a_token_is_found_under_a_grammar_in_about_the_time_that_is_said() -> None:
    ours, tools = grammar.Ours(vocabulary(), "hermes"), [grammar.tool(number) for number in range(10)]
    calls = [Call(tool.name, {"city": grammar.CITY, "unit": "celsius", "loud": True}) for tool in tools]
    ((text, kept),) = rows("R175").values()
    *_, chosen, _, _ = min((ours.text_row(tools, calls) for _ in range(3)), key=lambda row: row[-3])
    assert chosen / 1e3 < 5 * first_number(text)  # other machines are slower, and busy; a mistake in the way is a hundredfold
    assert kept.startswith("no") is (first_number(text) > 0.1)


@pytest.mark.req("R179")
def test_the_table_of_reliability_is_the_measured_one() -> None:
    section = (DOCS / "evaluation.md").read_text("utf-8").partition("### Constrained or not")[2]
    table = re.findall(r"^\| ?([\w.]*) \| `([\w-]+)` \|(?:[^|]*\|){3} ([^|]*) \|[^|]*\| ([\d.]+) \|$", section, re.MULTILINE)
    assert len(table) == 15
    assert all(float(seconds) > 0 for *_, seconds in table)  # an answer, in the median: what stands there for calls a second
    fit = {setup: [text for _, other, text, _ in table if other == setup] for _, setup, _, _ in table}
    constrained = [text for setup in ("guarded", "required", "one") for text in fit[setup]]
    assert all(re.fullmatch(r"\*\*100 %\*\* of \d+|(\d+) of \1", text) for text in constrained)
    count = sum(int(text.split()[-1]) for text in constrained)
    free = [first_number(text) for text in fit["free-repaired"] if "%" in text]
    assert free
    assert all(90 <= share < 99.9 for share in free)
    page = (DOCS / "performance.md").read_text("utf-8")
    assert f"constrained {count:,} of {count:,}: [evaluation]" in page
    assert all(f"{share} %" in page for share in free)
