"""A node of the village: its documents, a translator that knows a few sentences, and a marketplace. Run as a process of its own.

python -m tests.journeys.village URL IDENTITY MEMBERS DOCUMENTS POSTS
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from callsmith.bus.descriptor import Descriptor
from callsmith.bus.port import CapabilityCall
from callsmith.capabilities.corpus import Corpora
from callsmith.server.parts.bus.node import open_node
from callsmith.server.parts.bus.settings import BusSettings
from callsmith.wire.capability.errors import BusError

PHRASES = {
    "die brücke ist am freitag gesperrt": "The bridge is closed on Friday.",
    "wann öffnet die halle": "When does the hall open?",
}
TEXT = {
    "type": "object",
    "properties": {"input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text", "to"]}},
    "required": ["input"],
}


async def main(url: str, identity: str, members: str, documents: str, posts: str) -> None:
    async def translate(call: CapabilityCall) -> dict[str, Any]:
        text = call.input["text"].strip(" .?!\"'").lower()
        if text not in PHRASES:
            raise BusError("bad_request", f"only these sentences are known: {', '.join(PHRASES)}")
        return {"output": {"text": PHRASES[text], "confidence": 1.0}, "meta": {}}

    async def post(call: CapabilityCall) -> dict[str, Any]:
        with Path(posts).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"title": call.input["title"], "for": call.authority.subject}) + "\n")
        return {"output": {"id": "offer 7"}, "meta": {}}

    corpora = Corpora()
    corpora.index("village", Path(documents))
    async with open_node(BusSettings(url=url, identity=identity, members=tuple(members.split(",")))).bus as bus:
        corpora.register(bus)
        bus.register(Descriptor("trans.text", request_schema=TEXT, idempotent=True), translate)
        bus.register(Descriptor("market.post", side_effects=True), post)
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
