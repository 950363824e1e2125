"""Telemetry: what became of each turn, as counters, files and spans."""
