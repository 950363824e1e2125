"""The report of a comparison: a table for people, as JSON, as JUnit's XML and as Markdown."""

from typing import Final
from xml.etree import ElementTree

from callsmith.core.serialize import dump
from callsmith.core.types.escaped_text import in_markdown, one_line, show_hidden
from callsmith.core.values import Json
from callsmith.evals.against.answers import KeptAnswer
from callsmith.evals.against.comparison import AgainstReport, MeasuredShare
from callsmith.evals.check.report import MARKS
from callsmith.evals.scores.report import Section, Table, markdown
from callsmith.evals.scores.scores import share_json
from callsmith.evals.scores.statistics import Share

_MOST_EXAMPLES: Final = 3  # of what is wrong by one measure
_LONGEST_NAME: Final = 100
_LONGEST_REASON: Final = 300
_NOTE: Final = (
    "Shares with Wilson's 95 % intervals. What is measured without the reference has to be as good as is wanted, or as the "
    "reference's own."
)


def measures_table(report: AgainstReport) -> Table:
    """A row a measure: the server's share and the reference's, and whether it is enough."""
    rows = [
        [f"{_mark(item)} {item.measure.name}", _show(item), _show_reference(item), _percent(item.wanted)]
        for item in report.measured()
    ]
    return ["measure", "this server", "reference", "wanted"], rows


def categories_table(report: AgainstReport) -> Table:
    """Each measure by category: right ones of those that count."""
    names = list(dict.fromkeys(item.question.category for item in report.answers))
    return ["category", *(item.measure.name for item in report.measured())], [
        [name, *(_count(item.categories.get(name)) for item in report.measured())] for name in names
    ]


def examples(item: MeasuredShare, most: int = _MOST_EXAMPLES) -> list[str]:
    """What is wrong by a measure, of the first few questions."""
    lines = [f"{id}: {one_line(reason, _LONGEST_REASON)}" for id, reason in list(item.wrong.items())[:most]]
    return lines + ([f"and {len(item.wrong) - most} more"] if len(item.wrong) > most else [])


def conclude(report: AgainstReport) -> str:
    """The whole in a sentence."""
    n, seconds = len(report.answers), f"{report.seconds:.0f} s"
    if not report.reference:
        return f"{n} questions were asked, {seconds}"
    compared = sum(item.reference is not None and not item.reference.error for item in report.answers)
    questions = f"{n} questions, {seconds}" if compared == n else f"{compared} of {n} questions compared, {seconds}"
    if report.failed:
        return f"not as the reference by {', '.join(item.measure.name for item in report.failed)}; {questions}"
    if not report.is_finished:
        return f"it could not be found out whether it is as the reference; {questions}"
    measured = report.measured()
    left_out = [item.measure.name for item in measured if not item.share.n]
    if left_out:
        counted = f"{len(measured) - len(left_out)} of {len(measured)} measures; no answer counts for {', '.join(left_out)}"
        return f"as the reference by {counted}; {questions}"
    return f"as the reference by all {len(measured)} measures; {questions}"


def as_markdown(report: AgainstReport) -> str:
    """The report card."""
    title = f"{report.server}: {one_line(report.model, _LONGEST_NAME)}"
    if report.reference:
        title += f", against {one_line(report.reference_model, _LONGEST_NAME)}"
    wrong = [[item.measure.name, line] for item in report.measured() for line in examples(item)]
    heads, rows = measures_table(report)
    explained = [[*row, item.measure.title] for row, item in zip(rows, report.measured(), strict=True)]
    sections: list[Section] = [
        ("Measures", _NOTE, ([*heads, "what should hold"], explained)),
        ("By category", "", categories_table(report)),
    ]
    if wrong:
        sections.append(("What differs", "", (["measure", "question and difference"], wrong)))
    lines = [f"{in_markdown(head)}: {in_markdown(remark)}." for head, remark in report.remarks.items()]
    return markdown(title, sections) + "\n" + "\n\n".join([*lines, f"{in_markdown(conclude(report))}."]) + "\n"


def as_json(report: AgainstReport) -> Json:
    """All of it, with the answers."""
    return {
        "url": report.url,
        "server": report.server,
        "model": report.model,
        "dialect": report.dialect,
        "reference": {"from": report.reference, "model": report.reference_model} if report.reference else None,
        "questions": len(report.questions),
        "answered": len(report.answers),
        "seconds": round(report.seconds, 1),
        "finished": report.is_finished,
        "failed": [item.measure.name for item in report.failed],
        "remarks": report.remarks,
        "measures": {item.measure.name: _measure_json(item) for item in report.measured()},
        "answers": [
            {
                "question": item.question.id,
                "category": item.question.category,
                "whole": _answer_json(item.whole),
                "streamed": _answer_json(item.streamed),
                "reference": _answer_json(item.reference),
                "steady": item.is_steady,
            }
            for item in report.answers
        ],
    }


def as_junit(report: AgainstReport) -> str:
    """A test case a measure: one that is not enough has failed, one that nothing counts for is skipped; and one for the end."""
    suite = ElementTree.Element("testsuite", {"name": show_hidden(f"callsmith check {report.url}")})
    measured, failed = report.measured(), {item.measure.name for item in report.failed}
    for item in measured:
        case = ElementTree.SubElement(suite, "testcase", {"classname": report.dialect, "name": item.measure.name})
        if item.measure.name in failed:
            message = f"{item.measure.title}: {_show(item)}, wanted {_percent(item.wanted)}"
            element = ElementTree.SubElement(case, "failure", {"message": show_hidden(message)})
            element.text = show_hidden("\n".join(examples(item, 20)))
        elif not item.share.n:
            ElementTree.SubElement(case, "skipped", {"message": "no answer counts for this measure"})
    end = ElementTree.SubElement(suite, "testcase", {"classname": report.dialect, "name": "finished"})
    if not report.is_finished:
        remarks = "; ".join(f"{head}: {remark}" for head, remark in report.remarks.items())
        ElementTree.SubElement(end, "error", {"message": show_hidden(remarks or conclude(report))})
    counts = {"tests": len(measured) + 1, "failures": len(failed), "errors": int(not report.is_finished)}
    counts["skipped"] = len(suite.findall("testcase/skipped"))
    suite.attrib |= {key: str(value) for key, value in counts.items()} | {"time": f"{report.seconds:.3f}"}
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _mark(item: MeasuredShare) -> str:
    if not item.share.n:
        return MARKS["skipped"]
    return " " if item.wanted is None else MARKS["right" if item.is_enough else "wrong"]


def _show(item: MeasuredShare) -> str:
    if not item.share.n:
        return "–"
    low, high = item.interval
    return f"{100 * item.value:.1f} % ({100 * low:.1f}–{100 * high:.1f}) of {item.share.n}"


def _show_reference(item: MeasuredShare) -> str:
    return "" if item.reference is None or not item.reference.n else f"{100 * item.reference.value:.1f} % of {item.reference.n}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.3g} %"


def _count(share: Share | None) -> str:
    return f"{share.right}/{share.n}" if share else "–"


def _measure_json(item: MeasuredShare) -> Json:
    low, high = item.interval
    return {
        "title": item.measure.title,
        "value": round(item.value, 5) if item.share.n else None,
        "low": round(low, 5),
        "high": round(high, 5),
        "right": item.share.right,
        "n": item.share.n,
        "wanted": item.wanted,
        "enough": item.is_enough,
        "reference": share_json(item.reference) if item.reference is not None else None,
        "categories": {
            name: {"right": share.right, "n": share.n, "value": round(item.measure.scale(share.value), 5)}
            for name, share in item.categories.items()
        },
        "wrong": dict(item.wrong),
    }


def _answer_json(answer: KeptAnswer | None) -> Json:
    return None if answer is None else dump(answer)
