"""The entry point that vLLM calls in each of its processes (group `vllm.general_plugins`)."""

import logging
import sys

from callsmith.core.errors import Unavailable

NAME = "callsmith"

_log = logging.getLogger("vllm.callsmith")


def register() -> None:
    """Make `--tool-call-parser callsmith` and `--reasoning-parser callsmith` known to vLLM.

    In a release of vLLM that the plug-in does not fit, that is logged; only a server that asks for callsmith does not start.
    """
    try:
        from callsmith.adapters.vllm import parsers
    except Unavailable as error:
        _log.error(str(error))
        if any(argument == NAME or argument.endswith(f"={NAME}") for argument in sys.argv):
            raise RuntimeError(str(error)) from error
        return
    parsers.register(NAME)
