"""What real clients hold a stream to: `complaints("chat", frames)`. Each dialect has its rules in a module of its own."""

from tests.wire.shapes import anthropic, chat, ollama, responses  # noqa: F401  their rules are known once they are imported
from tests.wire.shapes.rules import DONE, RULES, Sent, called, complaints, parse_events, parse_lines

__all__ = ["DONE", "RULES", "Sent", "called", "complaints", "parse_events", "parse_lines"]
