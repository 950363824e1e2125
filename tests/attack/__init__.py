"""Attacks: what a web page, a client, a model's output, a tool's output, an MCP server or a weights file may try.

Each test is one attack, and holds that it fails and what the attacker is told. `make test-attack` runs them, in CI too.
"""
