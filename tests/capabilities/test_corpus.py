"""The reference corpus: folders of text files, searched over the bus."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import CapabilityCall
from callsmith.capabilities import corpus as corpus_module
from callsmith.capabilities.builtin_tools import BOUND, NAMES, builtin_tools
from callsmith.capabilities.corpus import Corpora, Indexed
from callsmith.capabilities.executor import ToolExecutor
from callsmith.core.errors import UnknownName, UsageError
from callsmith.core.ports import Context
from callsmith.core.values import Call
from callsmith.server.parts.bus.node import bus_tools
from callsmith.wire.capability.errors import BusError

HALL = "# The village hall\n\nThe hall opens at 17:42 on Tuesdays. The key is with Ms Jäger.\n"
BRIDGE = "# Die Brücke\n\nDie Brücke über die Niers ist am Freitag gesperrt.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    (folder / "deep").mkdir(parents=True)
    (folder / "hall.md").write_text(HALL, "utf-8")
    (folder / "deep" / "bridge.txt").write_text(BRIDGE, "utf-8")
    (folder / "photo.jpg").write_bytes(b"\xff\xd8hall")
    return folder


@pytest.fixture
def corpora(folder: Path, tmp_path: Path) -> Corpora:
    corpora = Corpora(tmp_path / "corpora.db")
    assert corpora.index("village", folder) == Indexed(2, 0, 0)
    return corpora


def bus_of(corpora: Corpora) -> CapabilityBus:
    bus = CapabilityBus()
    corpora.register(bus)
    return bus


async def search(bus: CapabilityBus, query: str, corpus: str = "village", **fields: Any) -> list[Any]:
    body = {"params": {"corpus": corpus}, "input": {"query": query, **fields}}
    return (await bus.call("rag.query", (1, 0), body))["output"]["chunks"]


@pytest.mark.req("R127")
@pytest.mark.req("R128")
async def test_what_stands_in_the_documents_is_found(corpora: Corpora) -> None:
    bus = bus_of(corpora)
    (chunk,) = await search(bus, "When does the hall open?", k=1)
    assert (chunk["rank"], chunk["metadata"]["doc_title"], "17:42" in chunk["text"]) == (1, "hall.md", True)
    assert chunk["score"] > 0
    (chunk,) = await search(bus, "brucke gesperrt")  # without the umlaut
    assert chunk["metadata"]["doc_title"] == "deep/bridge.txt"
    assert await search(bus, "zebra") == []
    assert await search(bus, "hall", filter={"doc_title": "deep/bridge.txt"}) == []
    assert all("text" not in item for item in await search(bus, "hall", include_text=False))
    listed = (await bus.call("rag.list_corpora", (1, 0), {}))["output"]["corpora"]
    assert [(item["name"], item["docs"], item["chunks"]) for item in listed] == [("village", 2, 2)]


@pytest.mark.parametrize(
    ("corpus", "fields", "code"),
    [
        ("moon", {"query": "hall"}, "not_found"),
        ("village", {"query": "hall", "k": 21}, "bad_request"),
        ("village", {"query": "hall", "k": 0}, "schema_mismatch"),
        ("village", {"query": ""}, "schema_mismatch"),
        ("village", {}, "schema_mismatch"),
    ],
)
async def test_what_cannot_be_answered_has_its_code(corpora: Corpora, corpus: str, fields: dict[str, Any], code: str) -> None:
    with pytest.raises(BusError) as failed:
        await bus_of(corpora).call("rag.query", (1, 0), {"params": {"corpus": corpus}, "input": fields})
    assert failed.value.code == code


@pytest.mark.parametrize(
    "query", ['hall" OR "x', "hall AND NOT hall", "NEAR(hall)", "text: hall", "*", "'; DROP TABLE passages; --", "\x00"]
)
async def test_a_query_is_words_and_no_language(corpora: Corpora, query: str) -> None:
    bus = bus_of(corpora)
    await search(bus, query)
    assert len(await search(bus, "hall")) == 1


async def test_a_folder_is_indexed_again_only_where_it_has_changed(corpora: Corpora, folder: Path) -> None:
    assert corpora.index("village", folder) == Indexed(0, 2, 0)
    (folder / "hall.md").write_text(HALL.replace("17:42", "18:00"), "utf-8")
    (folder / "deep" / "bridge.txt").unlink()
    (folder / "new.md").write_text("A new page about geese.", "utf-8")
    assert corpora.index("village", folder) == Indexed(2, 0, 1)
    bus = bus_of(corpora)
    assert "18:00" in (await search(bus, "hall"))[0]["text"]
    assert (await search(bus, "Brücke"), len(await search(bus, "geese"))) == ([], 1)


async def test_corpora_are_apart_and_outlive_the_process(corpora: Corpora, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("The hall of another town.", "utf-8")
    corpora.index("town", other)
    corpora.close()
    bus = bus_of(Corpora(tmp_path / "corpora.db"))
    assert len(await search(bus, "hall", "village")) == len(await search(bus, "hall", "town")) == 1


async def test_a_long_text_is_many_passages_and_the_best_comes_first(tmp_path: Path) -> None:
    pages = [f"# Page {number}\n\n{'filler words ' * 60}" for number in range(30)]
    pages[17] += " The password of the boat is heron."
    (tmp_path / "long.md").write_text("\n\n".join(pages), "utf-8")
    corpora = Corpora()
    corpora.index("long", tmp_path)
    passages = await search(bus_of(corpora), "password of the boat", "long")
    assert "heron" in passages[0]["text"]
    assert len(passages[0]["text"]) < 2000


async def test_many_searches_at_once(corpora: Corpora) -> None:
    bus = bus_of(corpora)
    passages = await asyncio.gather(*(search(bus, "hall") for _ in range(16)))
    assert all(len(chunks) == 1 for chunks in passages)


@pytest.mark.parametrize(("name", "complaint"), [("a b", "no name"), ("", "no name"), ("../x", "no name")])
def test_a_corpus_has_a_plain_name(corpora: Corpora, folder: Path, name: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        corpora.index(name, folder)


def test_a_link_out_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("the secret is owl", "utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    corpora = Corpora()
    corpora.index("village", folder)
    assert corpora.search("village", "owl") == []


# --- the built-in tools -------------------------------------------------------------------------------------------------------


M21 = ["search_corpus", "list_corpora", "translate", "list_marketplace"]
BUILT_IN: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # the capability, arguments, and the body of the call
    "search_corpus": (
        "rag.query@1.0",
        {"corpus": "village", "query": "hall"},
        {"params": {"corpus": "village"}, "input": {"query": "hall"}},
    ),
    "list_corpora": ("rag.list_corpora@1.0", {}, {"params": {}, "input": {}}),
    "translate": (
        "trans.text@1.0",
        {"text": "Wer ist da?", "from": "de", "to": "en"},
        {"params": {}, "input": {"text": "Wer ist da?", "from": "de", "to": "en"}},
    ),
    "list_marketplace": ("market.list@1.0", {"category": "offer"}, {"params": {}, "input": {"category": "offer"}}),
    "describe_image": (
        "img.describe@1.0",
        {"image_cid": "i1", "task": "caption"},
        {"params": {}, "input": {"image_cid": "i1", "task": "caption"}},
    ),
    "transcribe_audio": ("stt.transcribe@1.0", {"audio_cid": "a1"}, {"params": {}, "input": {"audio_cid": "a1"}}),
}


@pytest.mark.req("R127")
@pytest.mark.req("R128")
@pytest.mark.req("R129")
@pytest.mark.req("R131")
@pytest.mark.req("R132")
@pytest.mark.req("R133")
@pytest.mark.parametrize("name", BUILT_IN)
async def test_a_built_in_tool_calls_its_capability_in_its_version(name: str) -> None:
    reference, arguments, body = BUILT_IN[name]
    bus, calls = CapabilityBus(), list[tuple[str, Any]]()

    def offer(capability: str, version: tuple[int, int]) -> None:
        descriptor = Descriptor(capability, version=version)

        async def handle(call: CapabilityCall) -> dict[str, Any]:
            calls.append((descriptor.reference, call.body))
            return {"output": {"said": name}, "meta": {}}

        bus.register(descriptor, handle)

    executor = ToolExecutor(bus, [BOUND[name]])
    result = await executor.dispatch(Call(name, arguments, "c1"))
    assert (result.ok, result.code) == (False, "not_found")  # nobody offers it
    assert reference.partition("@")[0] in result.text
    capability = reference.partition("@")[0]
    offer(capability, (2, 0))
    assert (await executor.dispatch(Call(name, arguments, "c2"))).ok is False  # nor in this version
    offer(capability, (1, 0))
    result = await executor.dispatch(Call(name, arguments, "c3"))
    assert (result.ok, calls) == (True, [(reference, body)])


@pytest.mark.req("R130")
async def test_find_neighbour_tells_who_is_there() -> None:
    bus = CapabilityBus()

    async def handle(call: CapabilityCall) -> dict[str, Any]:
        return {"output": {}, "meta": {}}

    bus.register(Descriptor("trans.text"), handle)
    (result,) = [item async for item in builtin_tools(bus, ["find_neighbour"]).call(Call("find_neighbour", {}, "c1"), Context())]
    assert result.content == {"nodes": [{"node": "this node", "offers": ["trans.text@1.0"]}]}


@pytest.mark.req("R162")
async def test_the_default_set_is_these_four() -> None:
    assert [tool.name for tool in await builtin_tools(CapabilityBus()).tools()] == M21
    of_server = bus_tools(CapabilityBus(), ["default", "find_neighbour"])
    assert of_server is not None
    assert [tool.name for tool in await of_server.tools()] == [*M21, "find_neighbour"]


async def test_built_in_tools_are_switched_on_by_name() -> None:
    bus = CapabilityBus()
    bound = {tool.name: tool.bound_capability for tool in await builtin_tools(bus, NAMES).tools()}
    assert bound == {
        "search_corpus": "rag.query",
        "list_corpora": "rag.list_corpora",
        "translate": "trans.text",
        "list_marketplace": "market.list",
        "describe_image": "img.describe",
        "transcribe_audio": "stt.transcribe",
        "find_neighbour": None,
    }
    with pytest.raises(UnknownName, match="search_corpus"):
        builtin_tools(bus, ["search_korpus"])


@pytest.mark.req("R127")
async def test_the_search_tool_searches(corpora: Corpora) -> None:
    toolset = builtin_tools(bus_of(corpora), ["search_corpus", "find_neighbour"])
    call = Call("search_corpus", {"corpus": "village", "query": "hall"}, "c1")
    (result,) = [event async for event in toolset.call(call, Context())]
    assert "17:42" in str(result.content)
    (result,) = [event async for event in toolset.call(Call("find_neighbour", {}, "c2"), Context())]
    assert result.content == {"nodes": [{"node": "this node", "offers": ["rag.list_corpora@1.0", "rag.query@1.0"]}]}


def test_long_paragraphs_are_cut_between_words() -> None:
    words = [f"word{number}" for number in range(1000)]
    passages = [*corpus_module._passages(" ".join(words))]
    assert len(passages) > 2
    assert " ".join(passages).split() == words
