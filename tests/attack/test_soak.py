"""The soak finds what it looks for: a server that pays twice, forgets what it has acknowledged, and mixes up its clients."""

import math

from tests.attack.soak.client import Client
from tests.attack.soak.ledger import Ledger
from tests.attack.soak.soak import open_world


async def soaked(faults: str = "") -> Ledger:
    """What is found at a server with these faults, by a few requests of many kinds."""
    async with open_world(faults=faults) as world:
        client = Client(world.server.url, world.ledger, math.inf, seed=1)
        for kind in (client.approve, client.deny, client.build, client.ship, client.follow, client.background, client.be_lied_to):
            await client.attempt(kind)
        for _ in range(3):
            await client.attempt(client.say)
            await client.attempt(client.store)
        await world.settle()
    return world.ledger


async def test_a_server_that_pays_twice_forgets_and_mixes_up_its_clients_is_found():
    ledger = await soaked("pays-twice,forgets,mixes")
    assert ledger.ran_twice == 1
    assert any("which was complete" in lost for lost in ledger.lost)
    assert any("was answered with" in wrong for wrong in ledger.wrong)


async def test_nothing_is_found_where_nothing_is_wrong():
    ledger = await soaked()
    assert (ledger.wrong, ledger.lost, ledger.ran_twice, ledger.retried) == ([], [], 0, {})
    assert (len(ledger.approved), len(ledger.denied), ledger.done.total()) == (2, 1, 13)
