"""The laws as a check anyone can run: sound formats pass, and each way of being unsound is found."""

import pytest

from callsmith.formats import formats
from callsmith.formats.algebra import ARGS, JSON, KEY, NAME, RAW, VALUE, Calls, Format, Node, Says, Thinks, each, obj, opt
from callsmith.formats.inference import laws
from callsmith.formats.inference.laws import Breach, check

NAMED = obj(("name", NAME), ("arguments", ARGS))


def breaches(*parts: Calls | Says | Thinks) -> dict[str, Breach]:
    return {breach.law: breach for breach in check(Format("unsound", parts))}


@pytest.mark.parametrize("format", formats().values(), ids=lambda format: format.name)
@pytest.mark.sampled
def test_every_format_keeps_the_laws(format: Format) -> None:
    assert check(format, rounds=12) == []


def test_a_check_always_says_the_same() -> None:
    format = Format("unsound", (Calls("<", NAME, "|", ARGS, ">"),))
    assert check(format) == check(format)


@pytest.mark.parametrize(
    "nodes",
    [(opt("* "), KEY, ": ", VALUE, "\n"), ("<p>", KEY, VALUE, "</p>\n"), (KEY, "=", VALUE, ";\n")],
    ids=["optional-lead", "nothing-behind-the-key", "no-lead"],
)
def test_arguments_of_an_odd_shape_break_no_reader(nodes: tuple[Node, ...]) -> None:
    for values in (RAW, JSON):
        assert laws.NO_RAISE not in breaches(Calls("<c>", NAME, "\n", each(*nodes), "</c>", values=values))


def test_a_name_that_what_follows_it_cuts_off_is_found() -> None:
    breaches_found = breaches(Calls("<call ", NAME, "_", ARGS, ">"))
    assert "get_weather" in breaches_found[laws.ROUND_TRIP].text


def test_a_call_without_a_marker_is_found() -> None:
    assert laws.ROUND_TRIP in breaches(Calls(NAME, "\n", ARGS))


def test_reasoning_that_never_ends_is_found() -> None:
    assert laws.NO_LEAK in breaches(Thinks("<t>", ("\n",)), Calls("<call>", NAMED, "</call>"))


def test_a_reader_that_raises_is_found_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fragile(laws.Reader):
        def close(self, text: str = ""):
            raise LookupError("nobody thought of this")

    monkeypatch.setattr(laws, "Reader", Fragile)
    (breach,) = check(Format("sound", (Calls("<call>", NAMED, "</call>"),)))
    assert (breach.law, breach.what) == (laws.NO_RAISE, "LookupError: nobody thought of this")


def test_of_each_law_the_shortest_text_is_reported() -> None:
    breaches_found = check(Format("unsound", (Calls(NAME, "\n", ARGS),)))
    assert len({breach.law for breach in breaches_found}) == len(breaches_found)
