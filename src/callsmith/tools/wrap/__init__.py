"""Toolsets that hold toolsets: what is true of all calls is said once, around whatever runs them.

    toolset = Confirmed(Timed(Merged(functions, ("files", files), ("web", web)), seconds=20), Policy())

Order is meaning. `Confirmed` belongs outside whatever renames (its rules then see the names a person sees) and outside `Cached`
(a cached answer is not asked about again); `Retried` outside `Timed` tries again what took too long.
"""

from callsmith.tools.wrap.caching import Cached
from callsmith.tools.wrap.confirming import Confirmed
from callsmith.tools.wrap.limiting import Limited, Rate, Retried, Timed
from callsmith.tools.wrap.naming import Filtered, Merged, Renamed, fitting

__all__ = ["Cached", "Confirmed", "Filtered", "Limited", "Merged", "Rate", "Renamed", "Retried", "Timed", "fitting"]
