"""Resources and prompts of MCP servers, as a user names them."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from callsmith.core.errors import CallsmithError, UnknownName, UsageError
from callsmith.tools.mcp import McpHost
from callsmith.tools.mcp.resources import Prompt, Resource, ResourceContents

E = TypeVar("E")
Ask: TypeAlias = Callable[[str], Awaitable[tuple[Sequence[E], Sequence[str]]]]  # a server, for what it lists


async def list_resources(host: McpHost, server: str | None = None) -> tuple[list[Resource], list[str]]:
    """The resources of one server or of all, and what went wrong."""
    return await _list(host, server, host.resources)


async def list_prompts(host: McpHost, server: str | None = None) -> tuple[list[Prompt], list[str]]:
    """The prompts of one server or of all, and what went wrong."""
    return await _list(host, server, host.prompts)


async def _list(host: McpHost, server: str | None, ask: "Ask[E]") -> tuple[list[E], list[str]]:
    listed, notices = list[E](), list[str]()
    for name in [server] if server else host.configs:
        try:
            found, left_out = await ask(name)
            listed += found
            notices += (f"{name}: {notice}" for notice in left_out)
        except CallsmithError as error:
            if server:
                raise
            notices.append(str(error))
    return listed, notices


async def read_resource(host: McpHost, uri: str, server: str | None = None) -> Sequence[ResourceContents]:
    """What a resource says. Where the server is not named, it is the one that lists it, or the only one."""
    if server is None and len(host.configs) > 1:
        holders = dict.fromkeys(resource.server for resource in (await list_resources(host))[0] if resource.uri == uri)
        server = _only(holders, f"which server has {uri}?")
    return await host.read_resource(server or next(iter(host.configs), ""), uri)


async def get_prompt(host: McpHost, name: str, words: Iterable[str], server: str | None = None) -> str:
    """The text of a prompt, with its arguments as `name=value`."""
    listed, _ = await list_prompts(host, server)
    known = {prompt.server: prompt for prompt in listed if prompt.name == name}
    if not known:
        raise UnknownName("prompt", name, [prompt.name for prompt in listed])
    prompt = known[_only(known, f"several servers have a prompt {name}: which?")]
    messages = await host.prompt(prompt.server, name, _read_arguments(prompt, words))
    if len({message.role for message in messages}) <= 1:
        return "\n\n".join(message.content for message in messages)
    return "\n\n".join(f"{message.role.capitalize()}: {message.content}" for message in messages)


def usage(prompt: Prompt) -> str:
    """How a prompt is asked for."""
    arguments = (f"{item.name}=…" if item.required else f"[{item.name}=…]" for item in prompt.arguments)
    return " ".join((prompt.name, *arguments))


def _read_arguments(prompt: Prompt, words: Iterable[str]) -> dict[str, str]:
    arguments = dict[str, str]()
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in {item.name for item in prompt.arguments}:
            raise UsageError(f"{word!r} is no argument of this prompt: {usage(prompt)}")
        arguments[name] = value
    if missing := [item.name for item in prompt.arguments if item.required and item.name not in arguments]:
        raise UsageError(f"this prompt also needs {', '.join(missing)}: {usage(prompt)}")
    return arguments


def _only(servers: Iterable[str], question: str) -> str:
    names = list(servers)
    if len(names) != 1:
        which = f": {', '.join(names)}" if names else ""
        raise UsageError(f"{question} Name the server{which}")
    return names[0]
