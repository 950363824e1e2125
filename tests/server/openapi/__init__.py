"""The OpenAPI document, held against the routes, the readers and the answers."""
