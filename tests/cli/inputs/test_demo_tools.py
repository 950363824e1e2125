"""The demonstration tools."""

from callsmith.cli.inputs.demo_tools import TOOLS, get_weather
from callsmith.tools.starter import STARTER_TOOLS


def test_they_begin_with_those_that_the_page_offers():
    assert TOOLS[: len(STARTER_TOOLS)] == STARTER_TOOLS


def test_the_weather_is_made_up_and_says_so():
    assert get_weather("Paris") == get_weather("paris ") | {"city": "Paris"}
    assert "made up" in get_weather("Paris")["note"]
