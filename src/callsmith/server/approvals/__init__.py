"""Calls that wait for a person: in the store, with leases."""
