"""The report of a check: as text for people, as JSON, and as JUnit's XML for CI."""

from collections import Counter
from itertools import groupby
from typing import Final
from xml.etree import ElementTree

from callsmith.core.types.escaped_text import in_markdown, show_hidden
from callsmith.core.values import Json
from callsmith.evals.check.advice import advice
from callsmith.evals.check.run import DIALECTS, CheckReport, Finding, Verdict

_LONGEST_NAME: Final = 100
_LONGEST_REASON: Final = 200
MARKS: Final[dict[Verdict, str]] = {"right": "✓", "wrong": "✗", "weak": "~", "skipped": "-"}


def summary(report: CheckReport) -> list[str]:
    """A line a dialect, and one of all."""
    lines: list[str] = []
    for name, findings in groupby(report.findings, lambda finding: finding.dialect.name):
        lines.append(f"{DIALECTS[name].title:<20}{_count(list(findings))}")
    for name in report.unspoken:
        lines.append(f"{DIALECTS[name].title:<20}not spoken here")
    lines.append(f"{'all':<20}{_count(report.findings)}, {report.seconds:.0f} s")
    return lines + [f"{head:<20}{remark}" for head, remark in unknown(report).items()]


def unknown(report: CheckReport) -> dict[str, str]:
    """What is not known of the server because the check could not be finished."""
    remarks = {"stopped": report.stopped} if report.stopped else {}
    for head, what, names in (
        ("late", "were not answered in time", report.late),
        ("not asked", "were not asked", report.not_asked),
    ):
        if names:
            remarks[head] = f"{len(names)} of {len(report.planned)} probes {what}: {', '.join(names)}"
    return remarks


def _count(findings: list[Finding]) -> str:
    counts = Counter(finding.verdict for finding in findings)
    parts = [f"{counts['right']} right", f"{counts['wrong']} wrong"]
    parts += [f"{counts['weak']} the model did not do"] if counts["weak"] else []
    parts += [f"{counts['skipped']} not to be found out"] if counts["skipped"] else []
    return ", ".join(parts)


def explain(report: CheckReport, finding: Finding) -> list[str]:
    """What is wrong, how often if it was tried several times, and what can be done about it."""
    tried = sum(finding.counts.values())
    often = f" ({finding.counts[finding.verdict]} of {tried} times)" if tried > 1 else ""
    lines = [f"{MARKS[finding.verdict]} {finding.name}: {finding.probe.title}{often}", f"    {finding.reason}"]
    if finding.verdict == "wrong" and (advised := advice(report.server, finding.probe.name)):
        lines.append(f"    {advised}")
    return lines


def markdown(report: CheckReport) -> str:
    """The report card: a row an API, and one a probe of what is not right in any of them."""
    columns: tuple[Verdict, ...] = ("right", "wrong", "weak", "skipped")
    lines = [
        f"# {report.server}: {in_markdown(report.model, _LONGEST_NAME)}",
        "",
        "| | right | wrong | not done by the model | not found out |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, findings in groupby(report.findings, lambda finding: finding.dialect.name):
        counts = Counter(finding.verdict for finding in findings)
        lines.append(f"| {DIALECTS[name].title} | {' | '.join(str(counts[column]) for column in columns)} |")
    lines += [f"| {DIALECTS[name].title} | not spoken | | | |" for name in report.unspoken]
    missing = [line for head, remark in unknown(report).items() for line in ("", f"{head.capitalize()}: {in_markdown(remark)}.")]
    lines += missing
    seen: dict[tuple[str, str], list[Finding]] = {}
    for problem in report.of("wrong", "weak"):
        seen.setdefault((MARKS[problem.verdict], problem.probe.name), []).append(problem)
    if not seen:
        return "\n".join(lines if missing else [*lines, "", "Nothing is wrong."]) + "\n"
    lines += ["", "| | probe | in | what should hold | what was found |", "|---|---|---|---|---|"]
    for (mark, name), same in seen.items():
        where = ", ".join(item.dialect.name for item in same)
        reason = in_markdown(same[0].reason, _LONGEST_REASON)
        lines.append(f"| {mark} | `{name}` | {where} | {same[0].probe.title} | {reason} |")
    return "\n".join(lines) + "\n"


def as_json(report: CheckReport) -> Json:
    """All of it, with the exchanges."""
    return {
        "url": report.url,
        "server": report.server,
        "model": report.model,
        "dialects": report.dialects,
        "unspoken": report.unspoken,
        "counts": dict(Counter(finding.verdict for finding in report.findings)),
        "seconds": round(report.seconds, 1),
        "stopped": report.stopped or None,
        "late": report.late,
        "not_asked": report.not_asked,
        "findings": [
            {
                "name": finding.name,
                "title": finding.probe.title,
                "verdict": finding.verdict,
                "reason": finding.reason or None,
                "advice": (advice(report.server, finding.probe.name) or None) if finding.verdict == "wrong" else None,
                "counts": dict(finding.counts),
                "seconds": round(finding.seconds, 3),
                "exchanges": list(finding.exchanges),
            }
            for finding in report.findings
        ],
    }


def as_junit(report: CheckReport) -> str:
    """A test case a probe: what is wrong has failed, what the model did not do is skipped, what is not known is an error."""
    suite = ElementTree.Element("testsuite", {"name": show_hidden(f"callsmith check {report.url}")})
    counts = Counter({"tests": len(report.planned), "failures": 0, "skipped": 0, "errors": 0})

    def add(name: str, seconds: float, kind: str, reason: str, details: str = "") -> None:
        dialect, _, probe = name.partition(".")
        case = ElementTree.SubElement(suite, "testcase", {"classname": dialect, "name": probe, "time": f"{seconds:.3f}"})
        if kind:
            ElementTree.SubElement(case, kind, {"message": show_hidden(reason)}).text = show_hidden(details) or None
            counts[kind if kind == "skipped" else f"{kind}s"] += 1

    for finding in report.findings:
        kind = "error" if finding.is_late else {"wrong": "failure", "right": ""}.get(finding.verdict, "skipped")
        add(
            finding.name,
            finding.seconds,
            kind,
            finding.reason,
            "\n".join(explain(report, finding)) if kind == "failure" else "",
        )
    for name in report.not_asked:
        add(name, 0.0, "error", f"not asked: {report.stopped}")
    suite.attrib |= {key: str(value) for key, value in counts.items()}
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)
