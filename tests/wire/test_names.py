"""Names and ids on their way to another API and back: each is taken there, and none is mistaken for another."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsmith.core.values import TOOL_NAME, Call, Choice, Message, Request, Tool
from callsmith.wire.upstream.quirks import Quirks, ToolNames, fit_names, names_of

OPENAI = Quirks(name_characters="A-Za-z0-9_-", longest_name=64)
NAMES = st.from_regex(re.compile(r"[A-Za-z0-9_.:/-]{1,80}"), fullmatch=True)


@given(st.lists(NAMES, max_size=20))
def test_every_name_fits_and_comes_back(names: list[str]) -> None:
    tool_names = ToolNames(names, OPENAI)
    sent = [tool_names.outward(name) for name in names]
    assert all(OPENAI.allows_name(event) for event in sent)
    assert len(set(sent)) == len(set(names))
    assert [tool_names.inward(event) for event in sent] == names


def test_a_name_that_fits_stays_whatever_others_become() -> None:
    names = ToolNames(["files.read", "files_read", "files/read"], OPENAI)
    assert names.outward("files_read") == "files_read"
    assert len({names.outward(name) for name in ("files.read", "files_read", "files/read")}) == 3


def test_a_name_is_the_same_each_time_and_beside_other_tools() -> None:
    long = f"mcp__{'x' * 90}__read"
    assert ToolNames([long], OPENAI).outward(long) == ToolNames(["add", long, "sub"], OPENAI).outward(long)
    assert ToolNames(["a.b"], OPENAI).outward("a.b") == ToolNames(["c", "a.b"], OPENAI).outward("a.b") == "a_b"


def test_tools_choice_and_history_are_renamed_alike() -> None:
    tool = Tool("files.read")
    history = (
        Message.user("hi"),
        Message.assistant(calls=[Call("files.read", {}, "c1"), Call("gone.tool", {}, "c2")]),
        Message("tool", "x", call_id="c1", name="files.read"),
    )
    request = Request(history, (tool,), Choice.only("files.read"))
    sent = fit_names(request, names_of(request, OPENAI), OPENAI)
    assert sent.tools[0].name == "files_read"
    assert sent.choice == Choice.only("files_read")
    assert [call.name for call in sent.messages[1].calls] == ["files_read", "gone_tool"]
    assert sent.messages[2].name == "files_read"


def test_a_request_whose_names_fit_is_the_same_object() -> None:
    request = Request((Message.user("hi"),), (Tool("add"),))
    assert fit_names(request, names_of(request, OPENAI), OPENAI) is request
    assert fit_names(request, names_of(request, Quirks()), Quirks(ids="[a-z]{9}", id_length=9)) is request


@pytest.mark.parametrize(
    ("quirks", "kept"),
    [(Quirks(ids="[A-Za-z0-9]{9}", id_length=9), "abcdefghi"), (Quirks(ids="[A-Za-z0-9_-]+"), "call_1")],
)
def test_ids_fit_and_results_still_belong_to_their_calls(quirks: Quirks, kept: str) -> None:
    ids = [kept, "call 1/ü", "call 2/ü"]
    calls = [Call("add", {}, id) for id in ids]
    results = [Message("tool", "x", call_id=id) for id in ids]
    request = Request((Message.assistant(calls=calls), *results))
    sent = fit_names(request, names_of(request, quirks), quirks)
    fitted = [call.id for call in sent.messages[0].calls]
    assert fitted == [message.call_id for message in sent.messages[1:]]
    assert fitted[0] == kept and len(set(fitted)) == 3
    assert all(re.fullmatch(quirks.ids, id) for id in fitted)


def test_our_own_names_are_as_long_as_the_longest_here() -> None:
    assert Quirks().allows_name("x" * 256) and TOOL_NAME.fullmatch("x" * 256)
