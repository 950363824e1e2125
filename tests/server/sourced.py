"""Functions as another program's tools: a toolset whose tools say that they come from there."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from callsmith.core.events import ConfirmationNeeded, ToolProgress
from callsmith.core.ports import Context
from callsmith.core.values import Call, Result, Tool
from callsmith.tools.functions import Functions


class Sourced:
    """Functions, with a source of their own."""

    def __init__(self, source: str, *functions: Any) -> None:
        self._functions = Functions(*functions)
        self._source = source

    async def tools(self) -> Sequence[Tool]:
        return [replace(one, source=self._source) for one in await self._functions.tools()]

    def call(self, call: Call, context: Context) -> AsyncIterator[ToolProgress | ConfirmationNeeded | Result]:
        return self._functions.call(call, context)
