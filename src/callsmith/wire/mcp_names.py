"""Names of MCP servers and their tools in a conversation that comes from elsewhere, where the names used here are not known."""

MCP = "mcp"


def mcp_name(label: str, name: str) -> str:
    """The name of a server's tool: `mcp:files/read`."""
    return f"{MCP}:{label}/{name}"


def split_mcp_name(name: str) -> tuple[str, str]:
    """The label of the server and the tool's own name in an `mcp_name`; any other name as it is, with an empty label."""
    label, slash, own = name.removeprefix(f"{MCP}:").partition("/")
    return (label, own) if slash and name.startswith(f"{MCP}:") else ("", name)


def bare_name(name: str) -> str:
    """The tool's own name in an `mcp_name`; any other name as it is."""
    return split_mcp_name(name)[1]


def local_url(label: str) -> str:
    """The address that stands for the server of this name."""
    return f"{MCP}:{label}"
