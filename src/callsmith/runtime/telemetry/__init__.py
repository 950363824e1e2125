"""Telemetry: a record of each turn, as counters, files and spans."""
