"""The entry point that SGLang calls in each of its processes (group `sglang.srt.plugins`)."""

import logging

from callsmith.core.errors import Unavailable

NAME = "callsmith"

_log = logging.getLogger("sglang.callsmith")


def register() -> None:
    """Make `--tool-call-parser callsmith` and `--reasoning-parser callsmith` known to SGLang; where it does not fit, say so."""
    try:
        from callsmith.adapters.sglang import detectors
    except Unavailable as error:
        _log.error(str(error))
        return
    detectors.register(NAME)
