"""`closing`, which lives in the core: tools need it too."""

from callsmith.core.closing import closing

__all__ = ["closing"]
