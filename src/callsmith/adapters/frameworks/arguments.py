"""The parameters of a tool as a pydantic class, for frameworks that take no JSON Schema."""

from copy import deepcopy
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from callsmith.core.values import Tool


class _Arguments(BaseModel):
    """Any arguments: whether they fit is found when the tool is called, by its schema."""

    model_config = ConfigDict(extra="allow")


def arguments_class(tool: Tool) -> type[BaseModel]:
    """A class whose JSON Schema is the tool's, and which takes whatever arguments there are."""
    made = create_model(f"{tool.name}_arguments", __base__=_Arguments, __doc__=tool.description)

    def model_json_schema(*_: Any, **__: Any) -> dict[str, Any]:
        return deepcopy(dict(tool.parameters))  # some frameworks change it

    made.model_json_schema = model_json_schema
    return made
