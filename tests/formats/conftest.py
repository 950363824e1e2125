"""The order of the tests of formats: those of one chat template of the corpus after another."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of one template in a row: whoever runs them finds out once what format it speaks."""
    places = [place for place, item in enumerate(items) if item.path.is_relative_to(HERE) and _template(item)]
    for place, item in zip(places, sorted((items[place] for place in places), key=_template), strict=True):
        items[place] = item


def _template(item: pytest.Item) -> str:
    path = item.callspec.params.get("path") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    return path.stem if isinstance(path, Path) else ""
