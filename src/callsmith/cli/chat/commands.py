"""The commands of a chat: lines that begin with a slash."""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from callsmith.core.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from callsmith.cli.chat.session import ChatSession
    from callsmith.tools.mcp import McpHost

_COMMAND = re.compile(r"(/[A-Za-z?]*)(?:\s+(.*))?", re.DOTALL)  # and not /etc/hosts, or whatever else begins with a slash


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A command of a chat. `argument` is how the help calls what may follow it."""

    help: str
    run: "Callable[[ChatSession, str], None]"
    argument: str = ""


def is_command(line: str) -> bool:
    """Whether a line is a command and nothing to be said to the model."""
    return _COMMAND.fullmatch(line) is not None


def run_command(session: "ChatSession", line: str) -> None:
    """Run the command of a line. An UnknownName if there is none of that name: it says which one may have been meant."""
    command = _COMMAND.fullmatch(line)
    name, argument = (command[1], command[2] or "") if command else (line, "")
    if name not in COMMANDS:
        raise UnknownName("command", name, COMMANDS)
    COMMANDS[name].run(session, argument.strip())


def complete_line(session: "ChatSession", model_names: "Callable[[], list[str]]", text: str) -> Iterator[tuple[str, str]]:
    """What the last word of a line may become: a command, what goes with it, or the name of a tool."""
    first, _, word = text.rpartition(" ")
    if not first and text.startswith("/"):
        yield from ((name, command.help) for name, command in COMMANDS.items() if name.startswith(text))
    elif first == "/model":
        yield from ((name, "") for name in model_names() if name.startswith(word))
    elif word and (first == "/tools" or not text.startswith("/")):
        yield from ((name, "tool") for name in session.tool_names if name.startswith(word))


def _help(session: "ChatSession", argument: str) -> None:
    usages = {f"{name} {command.argument}".strip(): command.help for name, command in COMMANDS.items()}
    width = max(map(len, usages))
    for usage, text in usages.items():
        session.tell(f"  {usage:<{width}}  {text}", "")
    session.tell("Enter sends, Alt-Enter begins a new line. Ctrl-C clears the line or stops the answer, Ctrl-D leaves.", "")


def _tools(session: "ChatSession", argument: str) -> None:
    tools = {tool.name: tool for tool in session.runner.run(session.toolset.tools())}
    if argument and argument not in tools:
        raise UnknownName("tool", argument, tools)
    for tool in [tools[argument]] if argument else tools.values():
        text = tool.description if argument else tool.description.partition("\n")[0]
        effects = "  [has side effects: you are asked first]" if tool.side_effects else ""
        session.tell(f"{tool.name}({', '.join(tool.parameters.get('properties', ()))}): {text}{effects}", "")


def _resource(session: "ChatSession", argument: str) -> None:
    from callsmith.cli.inputs.mcp_material import list_resources, read_resource

    host = _host(session)
    words = argument.split()
    if not words:
        resources, notices = session.runner.run(list_resources(host))
        for item in resources:
            session.tell(f"{item.server} {item.uri}: {_first_line(item.description) or item.name}", "")
        _tell_notices(session, notices, "" if resources else "There are no resources.")
        return
    uri, server = words[-1], words[0] if len(words) > 1 else None
    contents = session.runner.run(read_resource(host, uri, server))
    text = "\n".join(item.described for item in contents)
    session.attached.append(f"{uri}:\n{text}")
    session.tell(f"{uri} ({len(text):,} characters) goes along with what you say next.", "")


def _prompt(session: "ChatSession", argument: str) -> None:
    from callsmith.cli.inputs.mcp_material import get_prompt, list_prompts, usage

    host = _host(session)
    try:
        words = shlex.split(argument)
    except ValueError as error:
        raise UsageError(f"/prompt {argument}: {error}") from error
    if words:
        text = session.runner.run(get_prompt(host, words[0], words[1:]))
        session.tell(f"> {text}")
        session.say(text)
        return
    prompts, notices = session.runner.run(list_prompts(host))
    for item in prompts:
        session.tell(f"/prompt {usage(item)}: {_first_line(item.description)}", "")
    _tell_notices(session, notices, "" if prompts else "There are no prompts.")


def _host(session: "ChatSession") -> "McpHost":
    if session.setup.host is None or not session.setup.host.configs:
        raise UsageError("there are no MCP servers; callsmith chat --mcp-config FILE has some")
    return session.setup.host


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _tell_notices(session: "ChatSession", notices: list[str], otherwise: str) -> None:
    for text in filter(None, (otherwise, *notices)):
        session.tell(text)


def _model(session: "ChatSession", argument: str) -> None:
    if argument:
        session.switch_model(argument)
    info = session.current.info
    about = [info.description, f"{info.context:,} tokens of context" if info.context else "", info.placement]
    session.tell(", ".join(filter(None, [session.current.spec, *about])), "")


def _save(session: "ChatSession", argument: str) -> None:
    if not argument:
        where = f"; it is in {session.setup.save} already" if session.setup.save else ""
        raise UsageError(f"/save FILE saves the conversation to that file{where}")
    session.conversation.save(argument)
    session.tell(f"Saved to {argument}; callsmith chat --save {argument} goes on with it.", "")


def _retry(session: "ChatSession", argument: str) -> None:
    session.retry()


def _reset(session: "ChatSession", argument: str) -> None:
    session.forget()
    session.tell("The conversation is forgotten.", "")


def _system(session: "ChatSession", argument: str) -> None:
    if argument:
        session.runner.run(session.conversation.instruct(argument))
    session.tell(session.conversation.instructions or "There are no instructions; /system TEXT gives some.", "")


def _quit(session: "ChatSession", argument: str) -> None:
    raise EOFError


COMMANDS = {
    "/help": SlashCommand("this list", _help),
    "/tools": SlashCommand("the tools, or one of them in full", _tools, "[NAME]"),
    "/resource": SlashCommand("the resources of MCP servers, or let one go along", _resource, "[[SERVER] URI]"),
    "/prompt": SlashCommand("the prompts of MCP servers, or say one", _prompt, "[NAME KEY=VALUE …]"),
    "/model": SlashCommand("the model, or go on with another one", _model, "[NAME]"),
    "/system": SlashCommand("the instructions to the model, or other ones", _system, "[TEXT]"),
    "/retry": SlashCommand("ask the last question again", _retry),
    "/save": SlashCommand("save the conversation", _save, "FILE"),
    "/reset": SlashCommand("forget the conversation", _reset),
    "/quit": SlashCommand("leave", _quit),
}
