"""An MCP server of files on a server of ours, and the OpenAI client that uses it over the Responses dialect."""

from typing import Any

from openai import AsyncOpenAI
from starlette.applications import Starlette

from callsmith.core.values import Call
from callsmith.engines.scripted import Scripted
from callsmith.formats.prompt.template import CHATML, Template
from callsmith.models.local import LocalModel
from callsmith.server.app import create_app
from callsmith.tools.functions import tool
from callsmith.tools.wrap import Renamed
from tests.fakes import Sourced
from tests.journeys.scripts import HERMES, client_of

FILES: Any = {"type": "mcp", "server_label": "files"}
ALWAYS: Any = {**FILES, "require_approval": "always"}
NEVER: Any = {**FILES, "require_approval": "never"}
NOW: Any = {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}}


class Disk:
    """A server of files, and what was done to it. Its tools are called `files_read` and so on here."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @property
    def tools(self) -> Renamed:
        def read(path: str) -> str:
            """Read a file."""
            self.done.append(f"read {path}")
            return f"contents of {path}"

        @tool(side_effects=True)
        def erase(path: str) -> str:
            """Erase a file."""
            self.done.append(f"erase {path}")
            if path == "/":
                raise PermissionError("not that one")
            return f"erased {path}"

        return Renamed(Sourced("mcp:files", read, erase), lambda name: f"files_{name}")


READ, ERASE = Call("files_read", {"path": "a"}), Call("files_erase", {"path": "a"})


def model_of(*replies: str) -> tuple[LocalModel, Scripted]:
    engine = Scripted(replies, chunk=5)
    return LocalModel(engine, HERMES, Template(CHATML)), engine


def app_of(disk: Disk, *replies: str, **options: Any) -> tuple[Starlette, Scripted]:
    model, engine = model_of(*replies)
    return create_app({"m": model}, tools=disk.tools, **options), engine


def client(disk: Disk, *replies: str, **options: Any) -> tuple[AsyncOpenAI, Scripted]:
    app, engine = app_of(disk, *replies, **options)
    return client_of(app), engine


async def answered(asking: AsyncOpenAI, stream: bool, **body: Any) -> Any:
    """The response; if it is streamed, as the client's own helper puts it together."""
    if not stream:
        return await asking.responses.create(model="m", **body)
    async with asking.responses.stream(model="m", **body) as events:
        async for _ in events:
            pass
        return await events.get_final_response()


def kinds(response: Any) -> list[str]:
    return [item.type for item in response.output]


def word(request: Any, approve: bool, **more: Any) -> Any:
    return {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve, **more}
