"""The types of JSON values and of JSON Schemas."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Json: TypeAlias = Any  # a JSON value: dict, list, str, int, float, bool or None
Schema: TypeAlias = Mapping[str, Any]  # a JSON Schema document
