"""Resources and prompts of MCP servers: listed, read, and offered to the model as two tools.

Resources are for the model to read where the operator turns that on ("resources": true), prompts for a person to choose.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from callsmith.core.approval import ToolChanged
from callsmith.core.errors import CallsmithError
from callsmith.core.failures import make_failure, unknown_tool
from callsmith.core.ports import Context
from callsmith.core.values import Call, Json, Message, Result, Schema, Tool
from callsmith.tools.mcp.config import ServerConfig
from callsmith.tools.mcp.content import MOST_ENTRIES, Notices, block_text
from callsmith.tools.mcp.transport.pages import list_pages

if TYPE_CHECKING:
    import mcp_types as types
    from mcp import Client

_MOST_SHOWN = 100  # entries of a list that the model reads at a time
_LONGEST_TEXT = 300  # characters of a description in such a list
_METHOD_NOT_FOUND = -32601


@dataclass(frozen=True, slots=True)
class Resource:
    """Something of a server's that can be read. Of a template, `uri` has names in braces that stand for something."""

    server: str
    uri: str
    name: str
    description: str = ""
    mime_type: str = ""
    size: int | None = None
    is_template: bool = False


@dataclass(frozen=True, slots=True)
class ResourceContents:
    """What was read: text, or other data in base64."""

    uri: str
    mime_type: str = ""
    text: str | None = None
    blob: str | None = None

    @property
    def described(self) -> str:
        """The text; other data is only described."""
        size = len(self.blob or "") * 3 // 4
        return self.text if self.text is not None else f"[resource {self.uri}, {self.mime_type or 'binary'}, {size} bytes]"


@dataclass(frozen=True, slots=True)
class PromptArgument:
    """What a prompt has to be told."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that a server has written, for a person to choose."""

    server: str
    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


@dataclass(frozen=True, slots=True)
class Material:
    """The resources and prompts of one server, asked for over an open connection."""

    client: "Client"
    config: ServerConfig
    notices: Notices

    @property
    def has_resources(self) -> bool:
        return self.client.server_capabilities.resources is not None

    @property
    def has_prompts(self) -> bool:
        return self.client.server_capabilities.prompts is not None

    async def resources(self) -> tuple[list[Resource], list[str]]:
        """The resources and the templates of some, and notices of what was left out."""
        if not self.has_resources:
            return [], []
        client, server = self.client, self.config.name
        self.notices.take("resources", "resourceTemplates")
        listed, notices = await list_pages(
            "resources",
            MOST_ENTRIES,
            lambda cursor: client.list_resources(cursor=cursor, cache_mode="refresh"),
            lambda page: page.resources,
        )
        templates, more = await self._templates()
        return [
            *(_read_resource(server, item, item.uri, item.size) for item in listed),
            *(_read_resource(server, item, item.uri_template, None, is_template=True) for item in templates),
        ], [*notices, *more, *self.notices.take("resources", "resourceTemplates")]

    async def _templates(self) -> "tuple[list[types.ResourceTemplate], list[str]]":
        from mcp import MCPError

        try:
            return await list_pages(
                "templates of resources",
                MOST_ENTRIES,
                lambda cursor: self.client.list_resource_templates(cursor=cursor, cache_mode="refresh"),
                lambda page: page.resource_templates,
            )
        except MCPError as error:
            if error.code == _METHOD_NOT_FOUND:  # it has resources, but no templates
                return [], []
            raise

    async def read(self, uri: str) -> list[ResourceContents]:
        """What a resource says."""
        import mcp_types as types

        answer = await self.client.read_resource(uri, cache_mode="refresh")
        return [
            ResourceContents(item.uri, item.mime_type or "", text=item.text)
            if isinstance(item, types.TextResourceContents)
            else ResourceContents(item.uri, item.mime_type or "", blob=item.blob)
            for item in answer.contents
        ]

    async def prompts(self) -> tuple[list[Prompt], list[str]]:
        """The prompts, and notices of what was left out."""
        if not self.has_prompts:
            return [], []
        self.notices.take("prompts")
        listed, notices = await list_pages(
            "prompts",
            MOST_ENTRIES,
            lambda cursor: self.client.list_prompts(cursor=cursor, cache_mode="refresh"),
            lambda page: page.prompts,
        )
        return [_read_prompt(self.config.name, item) for item in listed], [*notices, *self.notices.take("prompts")]

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> tuple[Message, ...]:
        """The messages of a prompt. What is no text is described."""
        answer = await self.client.get_prompt(name, dict(arguments))
        return tuple(Message(item.role, block_text(item.content)) for item in answer.messages)


def _read_resource(
    server: str,
    listed: "types.Resource | types.ResourceTemplate",
    uri: str,
    size: int | None,
    *,
    is_template: bool = False,
) -> Resource:
    name, about = listed.title or listed.name, listed.description or ""
    return Resource(server, uri, name, about, listed.mime_type or "", size, is_template)


def _read_prompt(server: str, listed: "types.Prompt") -> Prompt:
    arguments = (PromptArgument(item.name, item.description or "", bool(item.required)) for item in listed.arguments or ())
    return Prompt(server, listed.name, listed.description or listed.title or "", tuple(arguments))


_LIST_PARAMETERS: Schema = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "Only those whose name, URI or description has this in it."}},
}
_READ_PARAMETERS: Schema = {
    "type": "object",
    "properties": {"uri": {"type": "string", "description": "The URI, as list_resources has it; of a template, filled in."}},
    "required": ["uri"],
}


class ResourceTools:
    """A toolset of the two tools by which a model reads the resources of a server. `use` asks the server something."""

    def __init__(self, config: ServerConfig, use: Callable[[Callable[[Material], Awaitable[Any]]], Awaitable[Any]]) -> None:
        self._use = use
        effects = not config.trust  # as with the server's own tools
        about = f"the resources of {config.name}: files, records and other things that can be read"
        options: dict[str, Any] = {"side_effects": effects, "idempotent": True}
        options |= {"timeout": config.timeout, "source": config.source}
        self._tools = {
            tool.name: tool
            for tool in (
                Tool("list_resources", f"Lists {about}.", _LIST_PARAMETERS, **options),
                Tool("read_resource", f"Reads one of {about}.", _READ_PARAMETERS, **options),
            )
        }

    async def tools(self) -> Sequence[Tool]:
        return tuple(self._tools.values())

    async def call(self, call: Call, context: Context) -> AsyncIterator[Result]:
        tool = self._tools.get(call.name)
        if tool is None:
            yield unknown_tool(call, self._tools)
            return
        if context.approved not in ("", tool.digest):
            raise ToolChanged(call.name)
        await context.starting()
        try:
            text = await (self._list(call) if call.name == "list_resources" else self._read(call))
        except CallsmithError as error:
            yield make_failure(call, "tool_error", str(error))
            return
        yield Result(call.id, call.name, text)

    async def _list(self, call: Call) -> str:
        wanted = str(call.arguments.get("query") or "").casefold()
        listed, notices = await self._use(lambda material: material.resources())
        found = [item for item in listed if wanted in f"{item.name}\n{item.uri}\n{item.description}".casefold()]
        left_out = len(found) - _MOST_SHOWN
        more = [f"{left_out:,} more are not shown: ask with a query"] if left_out > 0 else []
        shown: list[Json] = [_describe(item) for item in found[:_MOST_SHOWN]]
        return "\n".join((json.dumps(shown, ensure_ascii=False), *more, *notices))

    async def _read(self, call: Call) -> str:
        uri = str(call.arguments["uri"])
        contents = await self._use(lambda material: material.read(uri))
        return "\n".join(item.described for item in contents)


def _describe(resource: Resource) -> dict[str, Json]:
    about = {"description": resource.description[:_LONGEST_TEXT], "mime_type": resource.mime_type}
    where = {"uri_template" if resource.is_template else "uri": resource.uri, "name": resource.name}
    return {**where, **{key: value for key, value in about.items() if value}}
