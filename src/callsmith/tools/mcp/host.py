"""McpHost: a toolset of the tools of several MCP servers.

async with McpHost(load_servers(Path("mcp.json"), os.environ)) as host:
    for status in host.status():
        print(status.name, status.state, status.tools)
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from operator import is_

from callsmith.core.approval import Policy
from callsmith.core.closing import closing
from callsmith.core.errors import MissingExtra, UnknownName, UsageError
from callsmith.core.ports import Context
from callsmith.core.values import Call, Message, Tool
from callsmith.tools.mcp.config import ServerConfig
from callsmith.tools.mcp.connection import Auth
from callsmith.tools.mcp.elicitation import ClientFeatures
from callsmith.tools.mcp.resources import Prompt, Resource, ResourceContents, ResourceTools
from callsmith.tools.mcp.supervisor import STANDARD_REFRESH, ServerSupervisor, Status
from callsmith.tools.review import review_tools
from callsmith.tools.wrap.naming import Route, Routed, api_name
from callsmith.tools.wrap.wrapper import Item

_log = logging.getLogger(__name__)

NO_FEATURES = ClientFeatures()


class McpHost(Routed):
    """A toolset over MCP servers. All are started when one is first needed, or by `start`.

    Names are changed to those every API accepts. A server that is down does not affect the others.
    """

    def __init__(
        self,
        servers: Iterable[ServerConfig],
        *,
        features: ClientFeatures = NO_FEATURES,
        refresh: float = STANDARD_REFRESH,
        auth: Auth | None = None,
    ) -> None:
        self._servers: dict[str, ServerSupervisor] = {}
        self._readers: dict[str, ResourceTools] = {}
        for config in servers:
            if find_spec("mcp") is None:
                raise MissingExtra("mcp", "MCP servers")
            if config.name in self._servers:
                raise UsageError(f"two MCP servers are called {config.name!r}", field="mcpServers")
            server = self._servers[config.name] = ServerSupervisor(config, features, refresh=refresh, auth=auth)
            self._readers[config.name] = ResourceTools(config, server.use)
        self._hidden: tuple[tuple[str, str], ...] = ()
        self._reviewed: list[Tool] = []
        self._remarks: tuple[tuple[str, str], ...] = ()  # on definitions, by server
        # A name stays valid even when a server that has the same tool comes up later.
        self._known_routes: dict[str, Route] = {}

    @property
    def policy(self) -> Policy:
        """The approval policy of the configuration, for `Confirmed`; by default calls with side effects need an approval."""
        return Policy(tuple(rule for server in self._servers.values() for rule in server.config.rules))

    @property
    def urls(self) -> Mapping[str, str]:
        """The URLs of the servers by their names; empty for local processes."""
        return {name: server.config.url for name, server in self._servers.items()}

    def start(self) -> None:
        """Start all servers, without waiting for them."""
        for server in self._servers.values():
            server.start()

    async def wait_until_settled(self) -> None:
        """Wait until every server is ready or has failed, however long an installation takes."""
        await asyncio.gather(*(server.wait_until_settled() for server in self._servers.values()))

    async def close(self) -> None:
        """End all servers, with all their processes."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    async def __aenter__(self) -> "McpHost":
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def status(self) -> tuple[Status, ...]:
        """The state of each server."""
        hidden = (*self._hidden, *self._remarks)
        return tuple(
            replace(server.status, notices=(*server.status.notices, *(why for where, why in hidden if where == name)))
            for name, server in self._servers.items()
        )

    @property
    def configs(self) -> Mapping[str, ServerConfig]:
        """The configurations of the servers by their names."""
        return {name: server.config for name, server in self._servers.items()}

    async def resources(self, server: str) -> tuple[Sequence[Resource], Sequence[str]]:
        """The resources of a server, and notices of what was left out."""
        return await self._server(server).use(lambda material: material.resources())

    async def read_resource(self, server: str, uri: str) -> Sequence[ResourceContents]:
        """What a resource of a server says."""
        return await self._server(server).use(lambda material: material.read(uri))

    async def prompts(self, server: str) -> tuple[Sequence[Prompt], Sequence[str]]:
        """The prompts of a server, and notices of what was left out."""
        return await self._server(server).use(lambda material: material.prompts())

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str] | None = None) -> tuple[Message, ...]:
        """The messages of a prompt of a server."""
        return await self._server(server).use(lambda material: material.prompt(name, arguments or {}))

    def _server(self, name: str) -> ServerSupervisor:
        if name not in self._servers:
            raise UnknownName("MCP server", name, self._servers)
        return self._servers[name]

    async def tools(self) -> Sequence[Tool]:
        """The tools of all servers. A server's first start is waited for."""
        current = await self._update_routes()
        return [tool for tool in await super().tools() if tool.name in current]

    async def call(self, call: Call, context: Context) -> AsyncIterator[Item]:
        if call.name not in self._known_routes:
            await self._update_routes()
        async with closing(super().call(call, context)) as items:
            async for item in items:
                yield item

    async def _routes(self) -> Mapping[str, Route]:
        return self._known_routes

    async def _update_routes(self) -> Mapping[str, Route]:
        servers = self._servers.values()
        await asyncio.gather(*(server.tools() for server in servers))
        listed = [(server, server, tool) for server in servers for tool in server.last_tools]
        readers = [(server, self._readers[server.config.name]) for server in servers if server.config.resources]
        own = [(server, reader, tool) for server, reader in readers if server.has_resources for tool in await reader.tools()]
        routes: dict[str, Route] = {}
        hidden: list[tuple[str, str]] = []
        for server, toolset, tool in (*listed, *own):
            prefix = server.config.prefix  # "auto": only where there are several servers
            is_prefixed = prefix == "always" or (prefix == "auto" and len(servers) > 1)
            name = api_name(f"{server.config.name}_{tool.name}" if is_prefixed else tool.name)
            if name not in routes:
                routes[name] = Route(toolset, tool)
            else:
                same = routes[name].tool.source == tool.source
                other = "another tool" if same else f"a tool of {routes[name].tool.source}"
                hidden.append((server.config.name, f'{tool.name}: {other} is called {name} already ("prefix" keeps them apart)'))
        self._hidden = tuple(hidden)
        self._review([tool for _, _, tool in listed])
        self._known_routes |= routes
        return routes

    def _review(self, tools: list[Tool]) -> None:
        """Look at the definitions, if they are others than the last time, and warn the operator of what is remarkable."""
        if len(tools) == len(self._reviewed) and all(map(is_, tools, self._reviewed)):
            return
        known, self._reviewed = self._remarks, tools
        self._remarks = tuple((tool.source.removeprefix("mcp:"), why) for tool, why in review_tools(tools))
        for server, why in self._remarks:
            if (server, why) not in known:
                _log.warning("MCP server %s: %s", server, why)
