"""The entry point that SGLang calls in each of its processes (group `sglang.srt.plugins`)."""

import logging
import sys
from collections.abc import Sequence

from callsmith.core.errors import Unavailable, UsageError

NAME = "callsmith"

_log = logging.getLogger("sglang.callsmith")


def register() -> None:
    """Make `--tool-call-parser callsmith` and `--reasoning-parser callsmith` known to SGLang; where it does not fit, say so."""
    refuse_other_tool_parser(sys.argv)
    try:
        from callsmith.adapters.sglang import detectors
    except Unavailable as error:
        _log.error(str(error))
        return
    detectors.register(NAME)


def refuse_other_tool_parser(arguments: Sequence[str]) -> None:
    """Our reasoning parser reads calls too, and hands them on in a form that only our tool parser knows."""
    tools = _option(arguments, "--tool-call-parser")
    if _option(arguments, "--reasoning-parser") == NAME and tools not in ("", NAME):
        raise UsageError(
            f"--reasoning-parser {NAME} reads tool calls too and cannot be combined with --tool-call-parser {tools}: "
            f"give --tool-call-parser {NAME} as well, or another reasoning parser"
        )


def _option(arguments: Sequence[str], name: str) -> str:
    """The value of an option on a command line, which stands behind it or behind a "="."""
    for index, argument in enumerate(arguments):
        if argument == name:
            return next(iter(arguments[index + 1 : index + 2]), "")
        if argument.startswith(f"{name}="):
            return argument.removeprefix(f"{name}=")
    return ""
