"""Several models behind one name space: aliases, and models that are in memory only while they are asked."""

from callsmith.models.router.aliases import Aliases
from callsmith.models.router.lazy import LazyModel, in_use
from callsmith.models.router.memory import MemoryBudget

__all__ = ["Aliases", "LazyModel", "MemoryBudget", "in_use"]
