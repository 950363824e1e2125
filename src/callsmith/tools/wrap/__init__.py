"""Wrappers: toolsets around toolsets that add names, confirmation, limits or a cache to all calls.

    toolset = Confirmed(Timed(Merged(functions, ("files", files), ("web", web)), seconds=20), Policy())

The order matters. `Confirmed` belongs outside wrappers that rename (its rules then see the names a person sees) and outside
`Cached` (a cached result needs no second approval).
"""

from callsmith.tools.wrap.auditing import Audited
from callsmith.tools.wrap.caching import Cached
from callsmith.tools.wrap.confirming import Confirmed
from callsmith.tools.wrap.limiting import Limited, Rate, Shortened, Timed
from callsmith.tools.wrap.naming import Filtered, Merged, Renamed, api_name
from callsmith.tools.wrap.wrapper import ListedOnce

__all__ = [
    "Audited",
    "Cached",
    "Confirmed",
    "Filtered",
    "Limited",
    "ListedOnce",
    "Merged",
    "Rate",
    "Renamed",
    "Shortened",
    "Timed",
    "api_name",
]
