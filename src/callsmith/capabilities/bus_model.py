"""BusModel: the model behind `llm.chat` of a bus."""

from collections.abc import AsyncGenerator

from callsmith.bus.port import Bus
from callsmith.core.capability.authority import Authority
from callsmith.core.closing import closing
from callsmith.core.events import ModelEvent
from callsmith.core.values import Request
from callsmith.wire.capability.chat import NAME, write_chat
from callsmith.wire.capability.chat_frames import ChatFrameReader


class BusModel:
    """A model of any node of a bus, as a `Model`; what goes wrong is raised as a BusError.

    It is asked with the authority that is given here, or else with that of the call being handled.
    """

    def __init__(self, bus: Bus, name: str = "", *, authority: Authority | None = None) -> None:
        self._bus = bus
        self._name = name
        self._authority = authority

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """The answer as events, of which the last is `Stopped`."""
        reader = ChatFrameReader()
        body = write_chat(self._name, request)
        frames = self._bus.stream(NAME, (2, 0), body, session_id=request.session, authority=self._authority)
        async with closing(frames) as items:
            async for frame in items:
                for event in reader.read(frame):
                    yield event
