"""Other servers that generate: an HTTP client for one of them, or for several that do the same."""

from callsmith.engines.upstream.client import RetryPolicy, Upstream, split_urls
from callsmith.engines.upstream.errors import BrokeOff
from callsmith.engines.upstream.replicas import Replica

__all__ = ["BrokeOff", "Replica", "RetryPolicy", "Upstream", "split_urls"]
