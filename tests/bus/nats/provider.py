"""A provider in a process of its own: `python -m tests.bus.nats.provider URL NAME FOLDER [broken]`.

Every side effect is a line in the file `effects` of the folder. What it is told comes by its input: "withdraw", or its end.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from callsmith.bus.descriptor import Descriptor
from callsmith.bus.opening import open_bus
from callsmith.bus.port import CapabilityCall
from callsmith.wire.capability.frames import Frame

WHO = Descriptor("experimental.who", max_concurrent=64)
EFFECT = Descriptor("experimental.effect", side_effects=True, max_concurrent=64)
AGAIN = Descriptor("experimental.again", idempotent=True, max_concurrent=64)
COUNT = Descriptor("experimental.count", stream_schema={"type": "object"})
TALK = Descriptor("experimental.talk", stream_schema={"type": "object"})


class Provider:
    """The handlers of one provider."""

    def __init__(self, name: str, folder: Path, *, broken: bool) -> None:
        self._name = name
        self._effects = folder / "effects"
        self._broken = broken

    def _record(self, what: str) -> None:
        handle = os.open(self._effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{self._name} {what}\n".encode())
        os.close(handle)

    async def who(self, call: CapabilityCall) -> dict[str, Any]:
        if self._broken:
            raise RuntimeError("broken")
        return {"output": {"name": self._name}, "meta": {}}

    async def effect(self, call: CapabilityCall) -> dict[str, Any]:
        self._record(f"begun {call.input['key']}")
        try:
            await asyncio.sleep(float(call.input.get("seconds", 0)))
        except asyncio.CancelledError:
            self._record(f"cancelled {call.input['key']}")
            raise
        return {"output": {"name": self._name, "key": call.input["key"]}, "meta": {}}

    async def count(self, call: CapabilityCall) -> AsyncIterator[Frame]:
        self._record(f"begun {call.input['key']}")
        try:
            for number in range(int(call.input.get("to", 10))):
                yield Frame("chunk", {"number": number})
                await asyncio.sleep(float(call.input.get("seconds", 0)))
        finally:
            self._record(f"ended {call.input['key']}")
        yield Frame("done", {"name": self._name})

    async def talk(self, call: CapabilityCall) -> AsyncIterator[Frame]:
        while (message := await call.receive()) is not None:
            yield Frame("chunk", {"echo": dict(message)})
        yield Frame("done")


async def main(url: str, name: str, folder: str, *options: str) -> None:
    provider = Provider(name, Path(folder), broken="broken" in options)
    bus = open_bus(url, trust_unsigned="member")
    withdraw = bus.register(WHO, provider.who)
    bus.register(EFFECT, provider.effect)
    bus.register(AGAIN, provider.effect)
    bus.register(COUNT, provider.count)
    bus.register(TALK, provider.talk)
    async with bus:
        print(bus.node, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip() == "withdraw":
                withdraw()
    print("closed", flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
