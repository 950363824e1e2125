"""A pattern of JSON Schema, rewritten into the syntax that every grammar engine reads the same way."""

import re

_TOKEN = re.compile(
    r"""
    (?P<class>\[\^?(?:\\.|[^\]\\])+\])
    | (?P<group>\((?:\?:|\?<\w+>|\?P<\w+>)?(?![?*+])) | (?P<close>\))
    | (?P<counted>\{\d{1,5}(?:,\d{0,5})?\}\??) | (?P<repeat>[*+?]\??)
    | (?P<escape>\\(?:u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]{1,6}\}|x[0-9a-fA-F]{2}|[pP]\{\w+(?:=\w+)?\}|[dDwWsStnrfv0]|[^\w\s]|\ ))
    | (?P<dot>\.) | (?P<other>[^\\\[\](){}*+?.])
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_CLASS = re.compile(r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[dDwWsStnrfv0]|[^\w\s]|b)|[^\\]", re.DOTALL)
_SPACES = r"\t\n\x0B\x0C\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_ESCAPES = {
    "\\d": "[0-9]", "\\D": "[^0-9]", "\\w": "[a-zA-Z0-9_]", "\\W": "[^a-zA-Z0-9_]", "\\s": f"[{_SPACES}]", "\\S": f"[^{_SPACES}]",
    "\\v": r"\x0B", "\\f": r"\x0C", "\\0": r"\x00", "\\/": "/",
    "\\<": "<", "\\>": ">",  # elsewhere these are the ends of words
}  # fmt: skip
_CLASS_ESCAPES = {"\\d": "0-9", "\\w": "a-zA-Z0-9_", "\\s": _SPACES, "\\b": r"\x08", "[": r"\[", "&": r"\&", "~": r"\~"}


def to_portable(pattern: str) -> str | None:
    """The pattern in the syntax that every engine understands the same way; None if it needs look-around or back references."""
    out: list[str] = []
    at = depth = 0
    repeatable = False
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            return None
        at, text, kind = token.end(), token[0], token.lastgroup
        if kind in ("counted", "repeat") and not repeatable:
            return None
        depth += (kind == "group") - (kind == "close")
        if depth < 0:
            return None
        repeatable = kind not in ("counted", "repeat", "group") and text not in ("^", "$", "|")
        spelled = _portable_token(kind, text)
        if spelled is None:
            return None
        out.append(spelled)
    return "".join(out) if depth == 0 else None


def _portable_token(kind: str | None, text: str) -> str | None:
    match kind:
        case "class":
            return _portable_class(text)
        case "group":
            return "("
        case "dot":
            return r"[^\n\r\u2028\u2029]"
        case "counted":
            least, _, most = text.strip("{}?").partition(",")
            return None if most and int(most) < int(least) else text.rstrip("?")
        case "repeat":
            return text[0]
        case "escape":
            return _ESCAPES.get(text, text)
        case _:
            return text


def _portable_class(text: str) -> str | None:
    """A class in square brackets; None if it mixes in a negated class such as `\\D`, unless it means any character."""
    negated = text.startswith("[^")
    body = text[2 if negated else 1 : -1]
    out: list[str] = []
    at = 0
    while at < len(body):
        match = _IN_CLASS.match(body, at)
        if match is None:
            return None
        at, member = match.end(), match[0]
        if member in ("\\D", "\\W", "\\S"):
            return text if body in ("\\s\\S", "\\S\\s", "\\d\\D", "\\w\\W") else None
        if member == "-" and out and out[-1] in ("0-9", "a-zA-Z0-9_", _SPACES):  # after a class it is no range
            member = "\\-"
        out.append(_CLASS_ESCAPES.get(member, _ESCAPES.get(member, member)))
    portable = f"[{'^' if negated else ''}{''.join(out)}]"
    try:
        re.compile(portable)
    except re.error:
        return None
    return portable
