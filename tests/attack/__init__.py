"""Attacks: what a web page, a client, a model's output, a tool's output, an MCP server or a weights file may try.

Each test is one attack, and holds that it fails and what the attacker is told. Quick ones run with all tests; those that take
long, or need a server process of their own for long, are marked `attack`: `make test-attack` runs all.
"""
