"""Other servers that generate: an HTTP client for one of them, or for several that do the same."""

from callsmith.engines.upstream.client import Patience, Upstream, split_urls
from callsmith.engines.upstream.errors import BrokeOff
from callsmith.engines.upstream.replicas import Replica

__all__ = ["BrokeOff", "Patience", "Replica", "Upstream", "split_urls"]
