"""The soak finds what it looks for: a server that pays twice, forgets what it has acknowledged, and mixes up its clients."""

from tests.attack.soak.ledger import Ledger
from tests.attack.soak.soak import soak

SECONDS = 12  # enough for some requests of every kind, and too few for anything to be hit


async def soaked(faults: str = "") -> Ledger:
    (world,) = await soak(SECONDS, faults=faults, small=True)
    assert world.ledger.done.total() > 10
    return world.ledger


async def test_a_server_that_pays_twice_forgets_and_mixes_up_its_clients_is_found():
    ledger = await soaked("pays-twice,forgets,mixes")
    assert ledger.ran_twice
    assert any("which was complete" in lost for lost in ledger.lost)
    assert any("was answered with" in wrong for wrong in ledger.wrong)


async def test_nothing_is_found_where_nothing_is_wrong():
    ledger = await soaked()
    assert (ledger.wrong, ledger.lost, ledger.ran_twice) == ([], [], 0)
