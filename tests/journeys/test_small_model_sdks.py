"""A small real model, asked by the vendors' own clients: counts, durations and errors as each of them knows them."""

from collections.abc import Iterator

import pytest

pytest.importorskip("llguidance")
pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

import anthropic

from callsmith.server.app import create_app
from tests.serving import served_apart
from tests.small import open_small

pytestmark = pytest.mark.weights

HI = [{"role": "user", "content": "Say hi."}]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served_apart(create_app({"small": open_small(context=512)})) as url:
        yield url


@pytest.fixture(scope="module")
def claude(address: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=address, api_key="none", max_retries=0)


def test_a_stream_of_messages_begins_with_the_tokens_of_its_prompt(claude: anthropic.Anthropic):
    counted = claude.messages.count_tokens(model="small", messages=HI).input_tokens
    for _ in range(2):  # the second time from the cache, which this API does not count among the input
        with claude.messages.create(model="small", messages=HI, max_tokens=4, stream=True) as stream:
            events = list(stream)
        first, last = events[0].message.usage, next(event for event in events if event.type == "message_delta").usage
        assert first.input_tokens + first.cache_read_input_tokens == counted > 0
        assert first.input_tokens == last.input_tokens
        assert first.output_tokens == 0 < last.output_tokens
