"""Every dialect's streams hold to the rules of `shapes`, whatever the format, the chunking and the turn of events."""

import json
import math
from collections.abc import Iterable
from typing import Any

import pytest

from callsmith.core.values import Call
from callsmith.engines.scripted import Scripted
from callsmith.formats import formats
from callsmith.formats.algebra import Format
from callsmith.formats.prompt.prompt import fit_id
from callsmith.formats.write import write
from callsmith.models.local import LocalModel
from tests.wire.shapes import called, complaints
from tests.wire.streams import DIALECTS, TEMPLATE, Breaking, running, stream_of, with_mcp

CHUNKS = (1, 3, 11, 100_000)


def scenarios(format: Format) -> dict[str, tuple[str, list[Call] | None]]:
    """What the model writes in each turn of events, and the calls in it where all of it arrives."""

    def call(number: int, name: str, **arguments: Any) -> Call:
        return Call(name, arguments, fit_id(f"call_{number}", format.ids))

    plain, empty = call(0, "note", text="Hello", size=3), call(1, "now")
    unicode = call(2, "note", text='naïve "東京" 🐈\n\\ {1}')
    both = write(format, [plain, unicode], text="Let me see.")
    return {
        "text": (write(format, text="Just words, <b>tags</b> and 東京 🐈."), []),
        "text and a call": (write(format, [plain], text="Let me see."), [plain]),
        "parallel calls": (write(format, [plain, empty, unicode]), [plain, empty, unicode]),
        "empty arguments": (write(format, [empty]), [empty]),
        "thinking": (write(format, [plain], text="So.", thought="Let me think."), [plain]),
        "unreadable": (both[: len(both) - len(write(format, [unicode])) // 2], None),
        "cut off": (both, None),
        "error": (both, None),
        "nothing": ("", []),
    }


def opened(format: Format, scenario: str, text: str, chunk: int) -> tuple[LocalModel, int]:
    """The model, and how many pieces it may say."""
    kind = Breaking if scenario == "error" else Scripted
    limit = max(1, math.ceil(len(text) / chunk) * 2 // 3) if scenario == "cut off" else 10**6
    return LocalModel(kind([text], chunk=chunk, repeat=True), format, TEMPLATE), limit


async def check(name: str, dialect: str, chunks: Iterable[int]) -> None:
    format = formats()[name]
    for scenario, (text, expected) in scenarios(format).items():
        for chunk in chunks:
            model, limit = opened(format, scenario, text, chunk)
            stream = await stream_of(dialect, model, limit)
            assert complaints(dialect, stream) == {}, f"{scenario}, in pieces of {chunk}: {text!r}"
            if expected is not None:
                assert called(dialect, stream) == [(call.name, call.arguments) for call in expected]
            assert ("out of memory" in json.dumps(stream[-1].data)) == (scenario == "error")


@pytest.mark.req("R103")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", formats())
@pytest.mark.sampled
async def test_streams_hold_to_the_rules(name: str, dialect: str):
    await check(name, dialect, (3,))


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", formats())
async def test_streams_hold_to_the_rules_in_pieces_of_any_size(name: str, dialect: str):
    await check(name, dialect, CHUNKS)


FOUND, LOST = Call("files_read", {"path": "a"}), Call("files_read", {"path": "東京"})
RAN: dict[str, list[list[Call]]] = {
    "one": [[FOUND]],
    "several": [[FOUND, LOST, Call("now")], [Call("files_read", {"path": "empty"})]],
    "with the client's": [[FOUND, Call("note", {"text": "x"})]],
    "refused": [[Call("files_read", {"size": 3}), Call("nope")]],
    "asked about": [[FOUND, Call("delete", {"path": "a"})]],
    "error": [[FOUND]],
}


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("scenario", RAN)
async def test_streams_in_which_tools_of_mcp_servers_ran_hold_to_the_rules(scenario: str, chunk: int):
    format = formats()["hermes"]
    texts = [write(format, calls, text="Let me see.", thought="Hm.") for calls in RAN[scenario]]
    stream = await running([*texts, "Done."], chunk, scenario)
    assert complaints("anthropic", stream) == {}
    known = {"files_read": "read", "now": "now", "note": "note"}
    ran = [(known[call.name], call.arguments) for calls in RAN[scenario] for call in calls if call.name in known]
    assert called("anthropic", stream) == ([] if scenario in ("refused", "error") else ran)


async def test_streams_with_items_of_mcp_servers_hold_to_the_rules():
    stream = await with_mcp()
    assert complaints("responses", stream) == {}
    kinds = [sent.data["item"]["type"] for sent in stream if sent.event == "response.output_item.done"]
    assert sorted(kinds) == [
        "function_call", "mcp_approval_request", "mcp_call", "mcp_call", "mcp_call", "mcp_list_tools", "message", "message"
    ]  # fmt: skip
    assert complaints("responses", await with_mcp("breaks")) == {}
