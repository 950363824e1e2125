"""Aliases: other names of models, and patterns of such names.

    Aliases({"fast": "small", "claude-*": "big"}, ["big", "small"]).find("claude-sonnet-5")    # → "big"

A model's own name wins, then an alias that is the same letter by letter, then the longest pattern that fits. Where there is one
model, any name of the hub (`Qwen/Qwen3-0.6B`) means it.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

from callsmith.core.errors import UsageError

_WILDCARDS = frozenset("*?[")


class Aliases:
    """Other names of models. An alias may name another one; a UsageError says which of them comes to no model."""

    def __init__(self, aliases: Mapping[str, str] = MappingProxyType({}), models: Iterable[str] = ()) -> None:
        self._models = frozenset(models)
        self._exact = {alias: target for alias, target in aliases.items() if not _is_pattern(alias)}
        patterns = [alias for alias in aliases if _is_pattern(alias)]
        self._patterns = [(pattern, aliases[pattern]) for pattern in sorted(patterns, key=len, reverse=True)]
        for alias, target in aliases.items():
            self._check(alias, target)

    @property
    def exact(self) -> Mapping[str, str]:
        """The aliases that are no patterns, each with the model that it means in the end."""
        return {alias: self.find(alias) or "" for alias in self._exact if alias not in self._models}

    def find(self, name: str) -> str | None:
        """The model that this name means; None if it means none."""
        seen: set[str] = set()
        while name not in self._models:
            following = self._target(name)
            if following is None or name in seen:
                return next(iter(self._models)) if len(self._models) == 1 and name.count("/") == 1 else None
            seen.add(name)
            name = following
        return name

    def _target(self, name: str) -> str | None:
        if name in self._exact:
            return self._exact[name]
        return next((target for pattern, target in self._patterns if fnmatchcase(name, pattern)), None)

    def _check(self, alias: str, target: str) -> None:
        if alias in self._models:
            raise UsageError(f"the alias {alias!r} is the name of a model, which wins: choose another", field=f"aliases.{alias}")
        chain = [alias, target]
        while (name := chain[-1]) not in self._models:
            following = self._target(name)
            if following is None:
                known = ", ".join(sorted(self._models))
                raise UsageError(
                    f"the alias {alias!r} means {name!r}, which is no model; there are: {known}", field=f"aliases.{alias}"
                )
            if following in chain:
                raise UsageError(f"aliases go round in a circle: {' → '.join([*chain, following])}", field=f"aliases.{alias}")
            chain.append(following)


def _is_pattern(alias: str) -> bool:
    return not _WILDCARDS.isdisjoint(alias)
