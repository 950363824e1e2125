"""White space that leads to another call leads to the end as well: a model that writes it is not forced to call again."""

from typing import Any

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from callsmith.core.events import CallReady, Text
from callsmith.core.values import Choice, Tool
from callsmith.formats import formats
from callsmith.formats.algebra import Format
from callsmith.formats.write import write
from callsmith.grammar.calls import CallsGrammar
from callsmith.grammar.relay import relay_for
from tests.grammar import test_dispatch
from tests.grammar.checking import call, obj, read, required, stuck

pytestmark = pytest.mark.weights

TOOLS = [Tool(f"get_{name}", "", obj({"key": {"type": "string"}}, "key")) for name in ("a", "b", "c", "d", "e", "f", "g")]
SPACED = {name: format for name, format in formats().items() if CallsGrammar(format, TOOLS, True).space}


def spaced(format: Format) -> str:
    """A call, and then the white space that another would begin with."""
    return write(format, [call(format, "get_a", {"key": "x"})]) + CallsGrammar(format, TOOLS, True).space


def test_many_formats_have_white_space_between_calls() -> None:
    assert {"hermes", "qwen3-coder", "glm45", "json"} <= SPACED.keys()
    assert "deepseek-v3" not in SPACED  # a marker ends its calls


@pytest.mark.parametrize("format", SPACED.values(), ids=SPACED)
def test_after_it_an_answer_may_end(format: Format) -> None:
    assert stuck(required(format, TOOLS[:2]), spaced(format)) is None
    events = read(format, [spaced(format)], TOOLS)
    assert [event.call.name for event in events if isinstance(event, CallReady)] == ["get_a"]
    assert not [event for event in events if isinstance(event, Text) and event.text.strip()]


@pytest.mark.parametrize("format", SPACED.values(), ids=SPACED)
def test_a_single_call_ends_without_it(format: Format) -> None:
    assert stuck(required(format, TOOLS[:2], parallel=False), spaced(format)) is not None


@pytest.mark.parametrize("format", SPACED.values(), ids=SPACED)
def test_among_many_tools_too(format: Format) -> None:
    relay_grammar: Any = relay_for(format, TOOLS, Choice("required"))
    if relay_grammar is None:
        pytest.skip("this format has no relay")
    assert test_dispatch.stuck(relay_grammar, spaced(format)) is None
    two = [call(format, "get_a", {"key": "x"}), call(format, "get_b", {"key": "y"})]
    assert test_dispatch.stuck(relay_grammar, write(format, two)) is None
