"""`ListedModel`: a model as the lists of all dialects have it."""

from dataclasses import dataclass
from datetime import UTC, datetime

from callsmith.core.ports import ModelInfo

_UNKNOWN = ModelInfo()


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model in a list: since when it is served (Unix time), what is known of it, and whether it is loaded. An alias is listed
    with what is known of the model it means, `alias_of`. `expires` is when it will be unloaded (Unix time), None: never."""

    name: str
    created: int = 0
    info: ModelInfo = _UNKNOWN
    is_loaded: bool = True
    alias_of: str = ""
    expires: float | None = None

    @property
    def created_at(self) -> str:
        """Since when it is served, as a date."""
        return write_moment(self.created)


def write_moment(seconds: float) -> str:
    """A Unix time as a date: `2026-11-16T08:00:00Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
