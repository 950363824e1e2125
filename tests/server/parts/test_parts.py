"""Parts of the server: a package put into a folder adds settings, tools and metrics, and runs as long as the server."""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from callsmith.server import parts
from callsmith.server.app import create_app
from callsmith.server.parts import Part, open_parts, section_types
from callsmith.server.parts.bus.part import BusPart
from callsmith.server.parts.bus.settings import BusSettings
from callsmith.server.settings import Settings
from tests.fakes import FakeModel
from tests.server.asking import http, says

PART = """
    from contextlib import asynccontextmanager

    from prometheus_client.core import GaugeMetricFamily

    from callsmith.server.parts import Part
    from callsmith.tools.functions import Functions, tool

    LIFE = []

    @tool
    def ring() -> str:
        '''Ring the bell.'''
        return "ding"

    class Bell(Part):
        name = "bell"

        def tools(self, settings):
            return Functions(ring)

        def attach(self, service):
            LIFE.append("attached")

        @asynccontextmanager
        async def running(self):
            LIFE.append("running")
            yield

        async def close(self):
            LIFE.append("closed")

        def metrics(self):
            yield GaugeMetricFamily("bell_rings", "How often it has rung.", value=3)

    PART = Bell
"""
SETTINGS = """
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Bells:
        heading = "Bells"
        volume: int = 5

    SECTION = Bells
"""


@pytest.fixture
def bell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A part in a folder of its own, which is listed beside ours."""
    folder = tmp_path / "bell"
    folder.mkdir()
    for name, source in (("__init__", ""), ("part", PART), ("settings", SETTINGS)):
        (folder / f"{name}.py").write_text(dedent(source), "utf-8")
    monkeypatch.setattr(parts, "__path__", [*parts.__path__, str(tmp_path)])
    yield f"{parts.__name__}.bell"
    for name in [name for name in sys.modules if name.startswith(f"{parts.__name__}.bell")]:
        del sys.modules[name]


def test_the_sections_of_parts_are_listed(bell: str) -> None:
    sections = section_types()
    assert (sections["bus"], sections["bell"]().volume) == (BusSettings, 5)


async def test_a_part_adds_tools_and_metrics_and_lives_as_long_as_the_server(bell: str) -> None:
    app = create_app({"m": FakeModel(says("hi"))})
    async with app.router.lifespan_context(app), http(app) as client:
        listed = (await client.get("/v1/tools")).json()
        assert "ring" in str(listed)
        assert "bell_rings 3.0" in (await client.get("/metrics")).text
    assert sys.modules[f"{bell}.part"].LIFE == ["attached", "running", "closed"]


async def test_a_part_that_is_given_takes_the_place_of_its_like() -> None:
    part = BusPart()
    assert open_parts(Settings(), [part]) == (part,)
    (opened,) = open_parts(Settings())
    assert isinstance(opened, BusPart) and opened is not part


async def test_a_part_adds_nothing_by_itself() -> None:
    part = Part.open(Settings())
    assert (part.tools(Settings()), list(part.metrics())) == (None, [])
    async with part.running():
        await part.close()


def test_settings_of_a_part_are_those_that_were_given_or_its_defaults() -> None:
    assert Settings().part(BusSettings) == BusSettings()
    assert Settings(parts=(BusSettings(community="village"),)).part(BusSettings).community == "village"
