"""HTTP: request bodies, streams, request context, keys, limits, errors."""
