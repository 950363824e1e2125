"""The models that the server serves, by their names and aliases, and which of them a caller may use."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException

from callsmith.core.errors import UnknownName
from callsmith.core.ports import Model, model_info
from callsmith.models.router import Aliases, model_status
from callsmith.server.http.keys import matches
from callsmith.server.http.request_context import current_request
from callsmith.wire.model_list import ListedModel

DEFAULT_MODEL = "default"  # another name for the first model, unless an alias says otherwise


@dataclass(frozen=True, slots=True)
class ServedModels:
    """All models by name, and their aliases. What a caller may use follows from the key of the request that is being answered."""

    all: Mapping[str, Model]
    aliases: Aliases = field(default_factory=Aliases)
    began: int = field(default_factory=lambda: int(time.time()))

    def visible(self) -> list[str]:
        """The names of the models that the caller may use."""
        http = current_request()
        return [name for name in self.all if http is None or matches(name, http.models)]

    def visible_aliases(self) -> dict[str, str]:
        """The aliases of those models, each with the model it means; patterns are not among them."""
        visible = set(self.visible())
        return {alias: name for alias, name in self.aliases.exact.items() if name in visible}

    def resolve(self, name: str) -> str:
        """The name of the model that is meant, perhaps by an alias: without one, or by `default`, the first that the caller may
        use. A name that means none for the caller is returned as it is."""
        if name in self.all:
            return name
        aliased = self.aliases.find(name or DEFAULT_MODEL)
        if aliased is not None and aliased in self.visible():
            return aliased
        return name if name not in ("", DEFAULT_MODEL) else next(iter(self.visible()), DEFAULT_MODEL)

    def get(self, name: str) -> Model:
        """The model of that name, if the caller may use it."""
        if name not in self.all:
            raise UnknownName("model", name, [*self.visible(), *self.visible_aliases()], field="model")
        if name not in self.visible():
            raise HTTPException(403, f"this key may not use the model {name!r}")
        return self.all[name]

    def name_of(self, model: Model) -> str:
        """The name under which a model is served; empty if it is not."""
        return next((name for name, served in self.all.items() if served is model), "")

    def list_visible(self) -> list[ListedModel]:
        """The models that the caller may use, and their aliases."""
        return [self.describe(name) for name in (*self.visible(), *self.visible_aliases())]

    def describe(self, name: str) -> ListedModel:
        """A model, by its name or by another, as lists have it."""
        meant = self.resolve(name)
        model = self.get(meant)
        alias = meant if name in self.aliases.exact else ""
        status = model_status(model)
        expires = None if status.expires_in is None else time.time() + status.expires_in
        return ListedModel(name if alias else meant, self.began, model_info(model), status.state == "loaded", alias, expires)
