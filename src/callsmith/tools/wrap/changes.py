"""What has changed between two definitions of a tool, in words for the person who is asked about it."""

import json
from difflib import unified_diff

from callsmith.core.values import Json, Tool

_LONGEST_TEXT = 300  # characters of a description that are shown
_MOST_LINES = 30  # of a diff that are shown
_LONGEST_SCHEMA = 20_000  # characters of both schemas of which a diff is made


def describe_change(old: Tool, new: Tool) -> str:
    """What of a tool is no longer as it was: both descriptions, and the lines of its schemas that differ."""
    changes = list[str]()
    if old.source != new.source:
        changes.append(f"it came from {old.source or 'here'} and now comes from {new.source or 'here'}")
    if (was := old.original or old.name) != (now := new.original or new.name):
        changes.append(f"it was {was} there and is now {now}")
    if old.description != new.description:
        changes.append(f"its description was {_cut(old.description)!r} and is now {_cut(new.description)!r}")
    if (old.side_effects, old.idempotent) != (new.side_effects, new.idempotent):
        changes.append("what it says of its side effects has changed")
    if old.parameters != new.parameters:
        changes.append(f"its parameters have changed:\n{_diff(old.parameters, new.parameters)}")
    if old.output != new.output:
        changes.append(f"its output has changed:\n{_diff(old.output, new.output)}")
    return "; ".join(changes)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text):,} characters)"


def _diff(old: Json, new: Json) -> str:
    before, after = (json.dumps(schema, indent=1, sort_keys=True, default=dict) for schema in (old, new))
    if len(before) + len(after) > _LONGEST_SCHEMA:
        return f"({len(before):,} characters before, {len(after):,} now)"
    changed = unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    lines = [line for line in changed if line[:2] not in ("--", "++", "@@")]
    more = [f"({len(lines) - _MOST_LINES} more lines)"] if len(lines) > _MOST_LINES else []
    return "\n".join((*lines[:_MOST_LINES], *more))
