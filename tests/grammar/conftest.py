"""The order of the tests of grammars: format by format."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of one format after another: they share a compiler, of which only the last ones are cached."""
    places = [place for place, item in enumerate(items) if item.path.parent == HERE]
    for place, item in zip(places, sorted((items[place] for place in places), key=_format), strict=True):
        items[place] = item


def _format(item: pytest.Item) -> str:
    call = getattr(item, "callspec", None)
    format = call.params.get("format", call.params.get("name")) if call else None
    return format if isinstance(format, str) else getattr(format, "name", "")
