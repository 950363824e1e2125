"""The built-in tools: bindings to common capabilities, switched on by name.

toolset = builtin_tools(bus, ["search_corpus", "list_corpora"])
"""

from collections.abc import Iterable, Mapping
from typing import Any

from callsmith.bus.bus import CapabilityBus
from callsmith.bus.reach import CapabilityTools, bound_tool
from callsmith.core.errors import UnknownName
from callsmith.core.ports import Toolset
from callsmith.core.values import Tool
from callsmith.tools.define import array, enum, integer, object_, string
from callsmith.tools.functions import Function, Functions
from callsmith.tools.wrap import Merged

DEFAULT_SET = ("search_corpus", "list_corpora", "translate", "list_marketplace")

_LANGUAGE = "A language code, such as de or en"

BOUND: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        bound_tool(
            "search_corpus",
            "Search the documents of a corpus for passages about a question. Use it before answering from memory.",
            object_(
                {
                    "corpus": string("The corpus to search, as list_corpora names it"),
                    "query": string("What to look for, in a few words"),
                    "k": integer("How many passages, 5 if not given", minimum=1, maximum=20),
                },
                required=["corpus", "query"],
            ),
            "rag.query@1.0",
            params=["corpus"],
            idempotent=True,
        ),
        bound_tool(
            "list_corpora",
            "List the corpora that can be searched, with their sizes.",
            object_({}),
            "rag.list_corpora@1.0",
            idempotent=True,
        ),
        bound_tool(
            "translate",
            "Translate a text of at most 4000 characters into another language.",
            object_(
                {"text": string("The text", maxLength=4000), "from": string(_LANGUAGE), "to": string(_LANGUAGE)},
            ),
            "trans.text@1.0",
            idempotent=True,
        ),
        bound_tool(
            "list_marketplace",
            "List current posts of the neighbourhood's marketplace.",
            object_(
                {
                    "category": enum(["offer", "request", "info", "emergency"]),
                    "tags": array(string(), "Only posts with these tags"),
                    "limit": integer("How many posts, 50 if not given", minimum=1, maximum=500),
                },
                required=[],
            ),
            "market.list@1.0",
        ),
        bound_tool(
            "describe_image",
            "Describe an image that was uploaded, or read the text in it.",
            object_(
                {
                    "image_cid": string("The id of the image"),
                    "task": enum(["caption", "detailed_caption", "ocr", "objects", "tags"]),
                    "language": string(_LANGUAGE),
                },
                required=["image_cid", "task"],
            ),
            "img.describe@1.0",
            idempotent=True,
        ),
        bound_tool(
            "transcribe_audio",
            "Write down what is said in a recording of at most five minutes.",
            object_({"audio_cid": string("The id of the recording"), "language": string(_LANGUAGE)}, required=["audio_cid"]),
            "stt.transcribe@1.0",
            collect="segment",
            join="text",
            idempotent=True,
            timeout=120.0,
        ),
    )
}
NAMES = (*BOUND, "find_neighbour")


def builtin_tools(bus: CapabilityBus, names: Iterable[str] = DEFAULT_SET) -> Toolset:
    chosen = list(names)
    for name in chosen:
        if name not in NAMES:
            raise UnknownName("built-in tool", name, NAMES, field="tools")
    bound = CapabilityTools(bus, [BOUND[name] for name in chosen if name in BOUND])
    return Merged(bound, Functions(_neighbours(bus))) if "find_neighbour" in chosen else bound


def _neighbours(bus: CapabilityBus) -> Function:
    async def find_neighbour() -> dict[str, Any]:
        """List the nodes that can be reached now, and what each of them offers."""
        nodes: dict[str, list[str]] = {}
        for offer in bus.offers():
            nodes.setdefault("this node" if offer.is_local else offer.node, []).append(offer.descriptor.reference)
        return {"nodes": [{"node": node, "offers": sorted(set(offers))} for node, offers in nodes.items()]}

    return Function.of(find_neighbour)
