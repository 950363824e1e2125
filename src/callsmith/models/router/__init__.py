"""Several models behind one name space: aliases, and models that are in memory only while they are asked."""

from callsmith.models.router.aliases import Aliases
from callsmith.models.router.lazy import LazyModel, MemoryBudget, ModelStatus, in_use, model_status

__all__ = ["Aliases", "LazyModel", "MemoryBudget", "ModelStatus", "in_use", "model_status"]
