"""What MCP servers and their tools are called in a history that does not know what they are called here."""

MCP = "mcp"


def mcp_name(label: str, name: str) -> str:
    """A tool of a server: `mcp:files/read`."""
    return f"{MCP}:{label}/{name}"


def bare_name(name: str) -> str:
    """The tool's own name in an `mcp_name`; any other name as it is."""
    return name.partition("/")[2] if name.startswith(f"{MCP}:") and "/" in name else name


def local_url(label: str) -> str:
    """The address that means the server of this name, wherever it is."""
    return f"{MCP}:{label}"
