"""Examples at the end of each command's help."""


def example(*lines: str) -> str:
    """The end of a help text: command lines, which are not wrapped."""
    return "\b\n" + "\n".join([f"Example{'s' if len(lines) > 1 else ''}:", *(f"  {line}" for line in lines)])
