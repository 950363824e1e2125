"""Plots as SVG."""

import xml.etree.ElementTree as ET

import pytest

from callsmith.evals.plot import Bar, bars, lines

_SVG = "{http://www.w3.org/2000/svg}"


def test_a_bar_is_as_high_as_its_value_and_tells_its_interval():
    drawn = ET.fromstring(
        bars("Right", ["one", "two"], {"free": [Bar(25, 20, 30), None], "held <to>": [Bar(50), Bar(100)]}, " %")
    )
    heights = {bar.find(f"{_SVG}title").text: float(bar.get("height")) for bar in drawn.iter(f"{_SVG}rect") if len(bar)}
    assert list(heights) == ["free, one: 25 % (20 to 30)", "held <to>, one: 50 %", "held <to>, two: 100 %"]
    quarter, half, whole = heights.values()
    assert half == pytest.approx(2 * quarter, abs=0.2) and whole == pytest.approx(4 * quarter, abs=0.3)


def test_lines_go_through_every_point():
    drawn = ET.fromstring(lines("Ratios", {"reader": [(1, 2.0), (2, 4.0), (3, 3.0)]}, "run"))
    (path,) = drawn.iter(f"{_SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in path.get("points").split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert points[1][1] < points[2][1] < points[0][1], "a higher value is further up"


@pytest.mark.parametrize("drawn", [bars("nothing", [], {}), lines("nothing", {}), lines("one", {"a": [(1, 0.0)]})])
def test_nothing_and_a_single_point_can_be_drawn(drawn: str):
    assert ET.fromstring(drawn).tag == f"{_SVG}svg"
