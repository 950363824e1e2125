"""Who is asked at the terminal."""

import asyncio
import io
import time
from typing import Any

import pytest
from rich.console import Console

from callsmith.cli.terminal.approvals import Approver
from callsmith.tools.mcp.elicitation import ElicitationRequest


async def test_two_servers_that_ask_at_once_do_not_get_each_others_answers(monkeypatch: pytest.MonkeyPatch):
    terminal = io.StringIO()

    def typed(prompt: str) -> str:
        """A user who takes a moment, and answers the latest question on the screen."""
        time.sleep(0.05)
        server = terminal.getvalue().splitlines()[-1].removeprefix("? ").partition(" ")[0]
        return "yes" if "Send it?" in prompt else server

    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    schema: Any = {"type": "object", "properties": {"who": {"type": "string"}}}
    approver = Approver(Console(file=terminal, highlight=False))
    replies = await asyncio.gather(*(approver.answer(ElicitationRequest(name, "Who?", schema)) for name in ("one", "two")))
    assert [reply.content for reply in replies] == [{"who": "one"}, {"who": "two"}]
