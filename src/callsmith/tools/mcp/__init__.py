"""MCP: the tools of MCP servers as a toolset.

    async with McpHost(read_servers(json.loads(text))) as host:
        async for event in run(model, host, request):
            ...

`McpHost` is a `Toolset` over any number of servers, each supervised on its own. Needs the extra `callsmith[mcp]`.
"""

from callsmith.tools.mcp.config import ServerConfig, load_servers, read_servers
from callsmith.tools.mcp.elicitation import ElicitationRequest
from callsmith.tools.mcp.host import McpHost
from callsmith.tools.mcp.supervisor import State, Status

__all__ = ["ElicitationRequest", "McpHost", "ServerConfig", "State", "Status", "load_servers", "read_servers"]
