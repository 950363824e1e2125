"""The real model that journeys share."""

import asyncio
from collections.abc import Iterator

import pytest

from callsmith.models import open_model
from callsmith.models.local import LocalModel
from callsmith.models.opening import Options
from callsmith.models.weights.fetch import fetch


@pytest.fixture(scope="package")
def small() -> Iterator[LocalModel]:
    """A model too small to call anything it need not."""
    pytest.importorskip("llguidance")
    pytest.importorskip("xllamacpp")
    fetch("smollm2-135m")
    model = open_model("smollm2-135m", Options(context=2048))
    yield model
    asyncio.run(model.close())
