"""Logging in lines of text or JSON. Every line of a request has its id."""

import json
import logging
import sys
import time

from callsmith.core.types.escaped_text import one_line, show_hidden
from callsmith.core.values import Json
from callsmith.server.http.request_context import ACCESS, current_request
from callsmith.server.settings import Log

_MINUTE = 60.0
_MOST_TROUBLES = 1_000  # that are remembered
ROUTER = logging.getLogger("callsmith.models.router")


class LineFormatter(logging.Formatter):
    """Records as single lines: `2026-11-15T06:00:00+0000 INFO callsmith.access request status=200 … request_id=req_1`."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(datefmt="%Y-%m-%dT%H:%M:%S%z")
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Json] = {
            "time": self.formatTime(record, self.datefmt),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if context := current_request():
            fields["request_id"] = context.id
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if self._as_json:
            return show_hidden(json.dumps(fields, ensure_ascii=False, default=str))
        trace = str(fields.pop("exception", ""))
        head = " ".join(one_line(str(fields.pop(name))) for name in ("time", "level", "logger", "message"))
        line = " ".join([head, *(f"{name}={_plain(str(value))}" for name, value in fields.items())])
        return "\n  ".join([line, *show_hidden(trace).split("\n")]) if trace else line  # no line of it looks like another record


class OnceAMinute(logging.Filter):
    """Lets of the same trouble one record a minute through, which says how often it came since the last one."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, ...], tuple[float, int]] = {}  # when it was last logged, and how often it was left out since

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        error = record.exc_info[1] if record.exc_info else None
        trouble = (record.name, record.getMessage(), type(error).__name__, str(error))
        logged, missed = self._seen.get(trouble, (-_MINUTE, 0))
        now = time.monotonic()
        if now - logged < _MINUTE:
            self._seen[trouble] = (logged, missed + 1)
            return False
        if len(self._seen) >= _MOST_TROUBLES:
            self._seen.clear()
        self._seen[trouble] = (now, 0)
        if missed:
            record.msg, record.args = f"{record.getMessage()} (and {missed} times before)", ()
        return True


def _plain(text: str) -> str:
    """Quote text with spaces or line breaks, so that it stays on its line."""
    return text if text.isprintable() and " " not in text else show_hidden(json.dumps(text, ensure_ascii=False))


def set_up_logging(log: Log) -> None:
    """Log to standard error: warnings, which models are loaded and unloaded, and every request if the settings say so."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(as_json=log.format == "json"))
    handler.addFilter(OnceAMinute())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    ROUTER.setLevel(logging.INFO)
    ACCESS.setLevel(logging.INFO if log.access else logging.WARNING)
