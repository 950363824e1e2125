"""Many streams at once over a real socket: nothing is dropped, and nothing comes out of order."""

from benchmarks.server import DIALECTS, WORDS, many, model_of
from callsmith.server.app import create_app
from callsmith.server.settings import Settings
from tests.serving import served


async def test_two_hundred_streams_at_once_lose_and_mix_up_nothing():
    async with served(create_app({"m": model_of(WORDS)}, settings=Settings(queue=200))) as url:
        await many(int(url.rpartition(":")[2]), *DIALECTS["chat completions"], 200)  # it checks each of them
