"""How far an answer was held to its schemas: an object of our own, beside what a dialect says of the end of an answer.

{"callsmith": {"unenforced": [{"tool": "add", "path": "#", "keyword": "not"}], "retries": 1}}
"""

from callsmith.core.events import Report, Unenforced
from callsmith.core.values import Json
from callsmith.wire.fields import Fields


def write_report(report: Report) -> dict[str, Json]:
    """The field to add; none where there is nothing to tell."""
    if report == Report():
        return {}
    left = [{"tool": one.tool or None, "path": one.path, "keyword": one.keyword} for one in report.unenforced]
    return {"callsmith": {"unenforced": left, "retries": report.retries}}


def read_report(fields: Fields) -> Report | None:
    """The report among these fields, if there is one."""
    told = fields.object("callsmith")
    if told is None:
        return None
    left = (
        Unenforced(one.text("tool") or "", one.text("path") or "", one.text("keyword") or "")
        for one in told.objects("unenforced")
    )
    return Report(tuple(left), told.integer("retries") or 0)
