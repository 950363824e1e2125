"""Upgrades of approvals, paused runs and grants that were stored before documents had versions (version 0 to 1)."""

from callsmith.core.values import Json


def upgrade_approval(old: Json) -> Json:
    """One field has another name, and one is gone: the approval's id is the only one of its question."""
    fields = {name: value for name, value in old.items() if name not in ("touched", "question")}
    return {"version": 1, **fields, "changed": old["touched"]}


def upgrade_paused_run(old: Json) -> Json:
    """The conversation had a version of its own, and the options about tools had other names."""
    wish, conversation = old["wish"], dict(old["conversation"])
    if conversation.pop("version") != 1:
        raise ValueError("the version of its conversation is not known")
    options = {
        "mode": wish["mode"],
        "sources": [_source(one) for one in wish["wanted"]],
        "response_id": wish["response"],
        "allowed": wish["tools"],
    }
    return {
        "version": 1,
        "model": old["model"],
        "request": {**old["request"], "session": wish["session"]},
        "options": options,
        "saved": conversation,
        "began": old["began"],
    }


def upgrade_grant(old: Json) -> Json:
    """It was only the list of the tools' names."""
    return {"version": 1, "tools": list(old)}


def _source(old: Json) -> Json:
    return {**old, "policy": old["policy"] and _policy(old["policy"])}


def _policy(old: Json) -> Json:
    """A rule was an array of its fields."""
    rules = [
        {"then": then, "tools": tools, "sources": sources, "side_effects": side_effects, "reason": reason}
        for then, tools, sources, side_effects, reason in old["rules"]
    ]
    return {**old, "rules": rules, "also": [_policy(one) for one in old["also"]]}
