"""Merged, Renamed, Filtered: which tools there are, and what they are called."""

from typing import Any

import pytest

from callsmith.core.errors import UsageError
from callsmith.core.events import ConfirmationNeeded
from callsmith.core.ports import Context
from callsmith.core.values import Call, Tool
from callsmith.tools.wrap import Confirmed, Filtered, Merged, Renamed, api_name
from tests.fakes import Recording
from tests.tools.wrap.recording import items, names, result


@pytest.mark.req("R155")
async def test_merged_tools_keep_their_names_unless_two_have_the_same():
    files, web = Recording(Tool("read"), Tool("search")), Recording(Tool("search"))
    both = Merged(("files", files), ("my web", web))
    assert await names(both) == ["read", "files_search", "my_web_search"]
    answer = await result(both, Call("my_web_search", {}, "c1"))
    assert (answer.name, answer.content) == ("my_web_search", "search done")
    assert [call.name for call in web.calls] == ["search"]
    assert files.calls == []


async def test_merged_tools_are_all_prefixed_on_demand():
    assert await names(Merged(("a", Recording(Tool("x"))), Recording(Tool("y", source="b:c")), prefix="always")) == [
        "a_x",
        "b_c_y",
    ]


@pytest.mark.parametrize(
    "merged",
    [
        Merged(("a", Recording(Tool("x"))), ("b", Recording(Tool("x"))), prefix="never"),
        Merged(Recording(Tool("x", source="s")), Recording(Tool("x", source="s"))),
        Merged(("a", Recording(Tool("x"), Tool("a_x"))), ("b", Recording(Tool("x")))),
    ],
)
async def test_a_collision_that_remains_is_an_error(merged: Merged):
    with pytest.raises(UsageError, match="two tools are called"):
        await merged.tools()


async def test_a_name_hidden_by_its_prefix_is_unknown():
    merged = Merged(("a", Recording(Tool("x"))), ("b", Recording(Tool("x"))))
    answer = await result(merged, Call("x", {}, "c1"))
    assert (answer.code, answer.text) == ("bad_request", "bad_request: there is no tool 'x'. The tools are: a_x, b_x")


@pytest.mark.req("R97")
async def test_what_is_granted_for_one_toolset_is_not_granted_for_its_neighbour():
    parts = [Confirmed(Recording(Tool("wipe", side_effects=True))) for _ in range(2)]
    merged = Merged(("a", parts[0]), ("b", parts[1]))
    granted = Context(granted=frozenset({(await merged.tools())[0].grant, Tool("wipe", side_effects=True).grant}))
    assert (await items(merged, Call("a_wipe", {}, "c1"), granted))[-1].content == "wipe done"
    (question,) = await items(merged, Call("b_wipe", {}, "c1"), granted)
    assert (type(question), question.call.name) == (ConfirmationNeeded, "b_wipe")


async def test_dotted_and_long_names_become_fit_and_lead_back():
    long = "server/" + "very." * 20 + "long"
    inner = Recording(Tool("rag.query"), Tool(long), Tool("plain-one_2"))
    renamed = Renamed(inner)
    dotted, short, plain = await names(renamed)
    assert (dotted, plain) == ("rag_query", "plain-one_2")
    assert len(short) == 64
    assert short.startswith("server_very_very")
    for name in (dotted, short, plain):
        assert (await result(renamed, Call(name, {}, "c1"))).name == name
    assert [call.name for call in inner.calls] == ["rag.query", long, "plain-one_2"]


async def test_names_that_would_become_the_same_are_told_apart_whatever_their_order():
    first = await names(Renamed(Recording(Tool("a.b"), Tool("a_b"), Tool("a:b"))))
    second = await names(Renamed(Recording(Tool("a:b"), Tool("a.b"), Tool("a_b"))))
    assert sorted(first) == sorted(second)
    assert len(set(first)) == 3
    assert "a_b" in first
    assert all(api_name(name) == name for name in first)


async def test_a_rule_of_ones_own_renames_and_a_table_that_collides_is_an_error():
    assert await names(Renamed(Recording(Tool("a"), Tool("b")), str.upper)) == ["A", "B"]
    with pytest.raises(UsageError, match="two tools would be called 'b'"):
        await Renamed(Recording(Tool("a"), Tool("b")), {"a": "b"}).tools()


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ({}, ["read", "write", "read_all"]),
        ({"allow": "read*"}, ["read", "read_all"]),
        ({"allow": ["read", "write"], "deny": "w*"}, ["read"]),
        ({"deny": lambda tool: tool.side_effects}, ["read", "read_all"]),
        ({"allow": lambda tool: tool.name == "write"}, ["write"]),
    ],
)
async def test_only_tools_that_are_allowed_and_not_denied_exist(which: dict[str, Any], expected: list[str]):
    inner = Recording(Tool("read"), Tool("write", side_effects=True), Tool("read_all"))
    filtered = Filtered(inner, **which)
    assert await names(filtered) == expected
    for name in ("read", "write", "read_all"):
        assert (await items(filtered, Call(name, {}, "c")))[-1].code == ("" if name in expected else "bad_request")
