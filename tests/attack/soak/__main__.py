"""`python -m tests.attack.soak [SECONDS]`."""

import asyncio
import sys

from tests.attack.soak.soak import soak
from tests.attack.soak.table import show

if __name__ == "__main__":
    _seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0
    _worlds = asyncio.run(soak(_seconds))
    show(_worlds, _seconds)
    sys.exit(1 if any(world.ledger.wrong or world.ledger.lost for world in _worlds) else 0)
