"""Several models behind one name space: aliases, and models that are in memory only while they are asked."""

from callsmith.models.router.aliases import Aliases
from callsmith.models.router.lazy import LazyModel, ModelStatus, in_use, model_status
from callsmith.models.router.memory import MemoryBudget

__all__ = ["Aliases", "LazyModel", "MemoryBudget", "ModelStatus", "in_use", "model_status"]
