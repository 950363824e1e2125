"""A home of its own for every test, and a hub on this machine."""

from tests.hub_fixtures import home, hub_server

__all__ = ["home", "hub_server"]
