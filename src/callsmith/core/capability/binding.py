"""Binding: which capability runs a tool, and how the tool's arguments are passed on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from callsmith.core.errors import UsageError
from callsmith.core.types.field_checks import check_fields
from callsmith.core.types.json_types import Json


@check_fields
@dataclass(frozen=True, slots=True)
class Binding:
    """The capability behind a tool. The body of a call is `{"params": …, "input": …}`.

    Arguments named in `params` go there, and the others to `input`. `constant_params` and `constant_input` are added: no argument
    takes their place. Of a capability that streams, the frames called `collect` are collected: as a list, or the texts in their
    field `join` as one text.
    """

    capability: str
    version: tuple[int, int] = (1, 0)
    params: tuple[str, ...] = ()
    constant_params: Mapping[str, Json] = field(default_factory=dict[str, Json])
    constant_input: Mapping[str, Json] = field(default_factory=dict[str, Json])
    collect: str = ""
    join: str = ""

    def __post_init__(self) -> None:
        if not self.capability or "@" in self.capability:
            raise UsageError(f"a binding names a capability such as 'rag.query', not {self.capability!r}", field="capability")
        if len(self.version) != 2:
            raise UsageError(f"a version is two numbers, as in (1, 0), not {self.version!r}", field="version")
        if self.join and not self.collect:
            raise UsageError("join names a field of the frames that collect names", field="join")

    def body(self, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """The body of a call with these arguments."""
        params = {name: value for name, value in arguments.items() if name in self.params}
        rest = {name: value for name, value in arguments.items() if name not in self.params}
        return {"params": {**params, **self.constant_params}, "input": {**rest, **self.constant_input}}
