"""Which tools a request gets, and who runs their calls.

| the request brings tools | the server has tools | who runs the calls |
|---|---|---|
| no | no | nobody: there is only text |
| yes | no, or yes | the client: the answer ends with its calls |
| no | yes | the server: the answer is one text |
| yes, and asks for `mixed` | yes | each its own: the answer ends where the client has something to run |

A request may ask for only some of the server's tools (`ToolOptions.sources`): then it gets those, besides its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from callsmith.core.capability.authority import Authority
from callsmith.core.choice import JOB_RESULT
from callsmith.core.ports import Context, Model, Toolset
from callsmith.core.serialize import Saved
from callsmith.core.values import Request, Tool
from callsmith.runtime.discovery import ToolCosts, limit_shown_tools
from callsmith.runtime.jobs.background import BackgroundTools
from callsmith.runtime.jobs.jobs import Jobs
from callsmith.server.http.request_context import caller, current_request, request_id
from callsmith.server.network.origins import is_loopback
from callsmith.server.settings import EVERYTHING, Settings
from callsmith.server.tools.plan import RunPlan, offered_tools
from callsmith.server.tools.tool_selection import select_tools
from callsmith.tools.mcp import McpHost
from callsmith.tools.wrap import Filtered, Limited, ListedOnce, Merged
from callsmith.wire.extensions import DEFAULT_OPTIONS, ToolOptions


@dataclass(frozen=True, slots=True)
class ToolPlanner:
    """The server's tools, and what a request gets of them.

    `toolset` are the tools that the server was given, `starter` those for requests that ask for them where it was given none.
    `mcp` are the MCP servers among them, and `jobs` the calls that go on in the background.
    """

    settings: Settings
    toolset: Toolset | None = None
    starter: Toolset | None = None
    mcp: McpHost | None = None
    jobs: Jobs = field(default_factory=Jobs)
    costs: ToolCosts = field(default_factory=ToolCosts)

    @property
    def configured(self) -> Mapping[str, str]:
        """The MCP servers that are configured, whether they run or not: label → url."""
        return self.mcp.urls if self.mcp else {}

    def why_down(self, label: str) -> str:
        """Why an MCP server does not run; empty if it does, or is not known."""
        states = self.mcp.status() if self.mcp else ()
        return next(
            (server.error or f"it is {server.state}" for server in states if server.name == label and server.state != "ready"), ""
        )

    def for_request(self) -> "ToolPlanner":
        """The same for one request, in which the tools are listed only once."""
        return self if self.toolset is None else replace(self, toolset=ListedOnce(self.toolset))

    def limit_calls(self, most: int | None, options: ToolOptions) -> "ToolPlanner":
        """The same with at most so many calls of the server's tools in a conversation; None: any number."""
        toolset = self.server_tools(options)
        return self if toolset is None or most is None else replace(self, toolset=Limited(toolset, budgets={"*": most}))

    def server_tools(self, options: ToolOptions) -> Toolset | None:
        """The tools that the server was given; where there are none, the starter tools, if the request asks for them."""
        return self.starter if self.toolset is None and options.starter else self.toolset

    def open_tools(self, options: ToolOptions = DEFAULT_OPTIONS) -> Toolset:
        """The server's tools that the caller may use."""
        http, tools = current_request(), self.server_tools(options) or Merged()
        tools = Filtered(tools, allow=http.tools) if http and http.tools != EVERYTHING else tools
        return tools if options.allowed is None else Filtered(tools, allow=options.allowed)

    async def list_offered(self, options: ToolOptions = DEFAULT_OPTIONS) -> tuple[Tool, ...]:
        """Those of the server's own tools that such a request is offered."""
        selected, _ = await select_tools(self.open_tools(options), options.sources, self.configured)
        return tuple(await selected.tools())

    def runs_no_tools(self, request: Request, options: ToolOptions) -> bool:
        """Whether nothing runs here: there is only the model, and perhaps tools of the client's that are all shown."""
        return not self._offers_server_tools(request, options) and not self._hidden_tools(request)

    async def plan(self, name: str, model: Model, request: Request, options: ToolOptions, saved: Saved | None = None) -> RunPlan:
        """Which tools the request gets, and for whom they run.

        `name` is the model's; `saved` is the run that is resumed, if one is.
        """
        available = self.open_tools(options) if self._offers_server_tools(request, options) else Merged()
        selected, tighten = await select_tools(ListedOnce(available), options.sources, self.configured)
        listed = BackgroundTools(selected, self.jobs, self.settings.llm.tools_background)
        hidden, guards = self._hidden_tools(request), None if self.settings.guards else ()
        hidden_names = {tool.name for tool in hidden}
        pinned = [JOB_RESULT, *(tool.name for tool in request.tools if tool.name not in hidden_names)]
        shown, server_tools = await limit_shown_tools(
            model, listed, self.costs, self.settings.llm.tools_budget, pinned=pinned, hidden=hidden, guards=guards
        )
        conversation, subject = (saved.id, saved.subject) if saved else (request.session or request_id(), caller())
        return RunPlan(
            name,
            shown,
            server_tools,
            replace(request, tools=offered_tools(await server_tools.tools(), request.tools)),
            Context(conversation=conversation, subject=subject, tighten=tighten, authority=self.authority_of(subject)),
            options,
            self.settings.limits,
            request.tools,
        )

    def authority_of(self, subject: str) -> Authority:
        """What a caller's key allows of capabilities: nothing, if it is gone. Where no keys are needed: whoever is at this
        machine is trusted like its operator."""
        if self.settings.keys:
            key = self.settings.keys.get(subject)
            return Authority(subject, trust=key.trust if key else "unknown", capabilities=key.capabilities if key else ())
        return Authority(subject, trust="trusted" if is_loopback(self.settings.host) else "member")

    def _offers_server_tools(self, request: Request, options: ToolOptions) -> bool:
        """Whether the model is offered tools of the server's own."""
        mixed = bool(options.sources) or (options.mode or self.settings.llm.tool_mode) == "mixed"
        return (self.server_tools(options) is not None or bool(options.sources)) and (mixed or not request.tools)

    def _hidden_tools(self, request: Request) -> tuple[Tool, ...]:
        """The client's tools that the model has to find: those that are deferred, or all of them where they are too many."""
        if request.choice.mode == "none":
            return ()
        most = self.settings.llm.client_tools_shown
        return tuple(tool for tool in request.tools if tool.deferred or (most is not None and len(request.tools) > most))
